//! A stand-in for NVIDIA's libraries, loaded before them into a process (`LD_PRELOAD`). PyTorch, Triton and code
//! compiled by nvcc then run on a card that does not exist.
//!
//! *Input*: environment variables (`settings.rs`) that name the card and the release of CUDA; without them, one card of
//! capability 9.0. *Output*: memory, streams, events, captures and graphs that behave as on the card, figures of the
//! card, and a log of the calls that it could not answer (`log.rs`). Kernels do nothing. The contents that they would
//! have written are unknown, and reads of them are counted (`values.rs`), unless a layer inside the program computes
//! them (`told.rs`).
//!
//! One library per file or folder: `runtime/` (cudart), `driver/` (libcuda), `blas.rs`, `blas_lt.rs`, `dnn/`,
//! `nccl.rs`, `nvml.rs`. Functions that cudart and libcuda have alike are in `both/`. All other public names, from `names/`, are no-ops (`noops.rs`). The other files are shared by
//! these. Written from public documentation. The addresses that it gives out belong to no memory.
//!
//! Exported functions trust their caller, as the real ones do: a pointer is null or valid for the size in the
//! interface.

#![cfg(target_os = "linux")]
// Names are those of the libraries.
#![allow(non_snake_case)]

mod answer;
mod argument;
mod blas;
mod blas_lt;
mod both;
mod card;
mod context;
mod control;
mod device_memory;
mod dnn;
mod driver;
mod entry;
mod exchange;
mod exports;
mod files;
mod handles;
mod heap;
mod host_memory;
mod images;
mod ipc;
mod kernels;
mod log;
mod lookups;
mod memory;
mod nccl;
mod noops;
mod nvml;
mod peers;
mod planning;
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
