//! The tests of the core, as one program.

mod allocators;
mod attention_events;
mod autograd;
mod caching_properties;
mod common;
mod cudnn_attention_events;
mod cudnn_batch_norm_events;
mod events;
mod fourier;
mod golden_traces;
mod gpt_events;
mod layer_norm_rows;
mod layout_events;
mod library;
mod mixed_events;
mod model_programs;
mod op_events;
mod out_of_memory;
mod saved_bytes;
mod sharding;
mod transfer;
