//! The tests of training, as one program.

mod checkpoints;
mod data_parallel;
mod faulty_training;
mod golden_vision;
mod pipeline;
mod zoo;
