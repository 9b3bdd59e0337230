//! The trained network and the examples on which the forms are compared.

/// Values of a linear layer on the host. Empty if the device has none.
pub(super) struct HostLayer {
    /// Number of input features. Below it, the number of output features.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// `[outputs, inputs]`
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

/// The examples that the forms are compared on.
pub(super) struct Exam {
    pub(super) inputs: Vec<f32>,
    pub(super) classes: Vec<i64>,
}
