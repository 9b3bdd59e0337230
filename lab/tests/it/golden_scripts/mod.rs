//! Compares training programs with the same programs in PyTorch, recorded from the unmodified torch 2.11.0+cu130 wheel: every row in all eleven columns,
//! then every event: its kind, its size, and which allocation a free gives back.
//!
//! If possible, a program is data: a model file with its `[schedule]`, or a network of the zoo with settings.

mod compare;
mod decoders;
mod drawn;
mod loops;
mod networks;
mod optimizers;
mod out_of_memory;
mod perceptrons;
mod recording;
mod recurrent;
mod run;
mod split;
mod streams;
