//! What the forms are compared on: a trained network, and examples.

/// A linear layer's values on the host; empty where the device has none.
pub(super) struct HostLayer {
    /// Features in and out.
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
