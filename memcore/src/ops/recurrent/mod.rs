//! LSTM, GRU and plain recurrent layers, and their cells.

pub(in crate::ops) mod algorithm;
pub(in crate::ops) mod cells;
pub(in crate::ops) mod cudnn;
pub(in crate::ops) mod layers;
pub(in crate::ops) mod network;

pub use layers::{gru, gru_cell, lstm, lstm_cell, rnn_relu, rnn_relu_cell, rnn_tanh, rnn_tanh_cell};
pub use network::{FlatWeights, Recurrent};
