//! A stand-in for NVIDIA's libraries, loaded before them into a process (`LD_PRELOAD`): PyTorch, Triton and code
//! compiled by nvcc then run on a card that is not there.
//!
//! *Given*: environment variables (`settings.rs`) that say which card, and which CUDA; without them, one card of
//! capability 9.0. *Gives*: memory, streams, events, captures and graphs that behave as on the card, figures of the
//! card, and a log of what it could not answer (`log.rs`). Kernels do nothing; what they would have written is
//! unknown, and reads of it are counted (`values.rs`), unless a layer inside the program computes it (`told.rs`).
//!
//! One library per file or folder: `runtime/` (cudart), `driver/` (libcuda), `blas.rs`, `blas_lt.rs`, `dnn/`,
//! `nccl.rs`, `nvml.rs`; all other public names, from `names/`, are no-ops (`noops.rs`). The other files are what these
//! share. Written from public documentation; an address it gives out belongs to no memory.
//!
//! Exported functions trust their caller as the real ones do: a pointer is null or good for what the interface says.

#![cfg(target_os = "linux")]
// The names are those of the libraries.
#![allow(non_snake_case)]

mod answer;
mod argument;
mod blas;
mod blas_lt;
mod card;
mod context;
mod control;
mod device_memory;
mod dnn;
mod driver;
mod entry;
mod exchange;
mod files;
mod handles;
mod host_memory;
mod images;
mod ipc;
mod kernels;
mod log;
mod memory;
mod nccl;
mod noops;
mod nvml;
mod peers;
mod pools;
mod promise;
mod runtime;
mod settings;
mod shared;
mod space;
mod symbols;
mod told;
mod values;
mod virtual_memory;
mod wheel;
mod work;
