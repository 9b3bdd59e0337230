//! Memory of training without running it: closed forms in the sizes of the layers. Quantities without a closed form (a peak, reserved memory) are
//! measured, on a device or in a dry run on `meta`.

use memcore::Profile;

/// Rounds `bytes` up to a multiple of 512, at least 512: the block that PyTorch's allocator gives to a request of at most 1 MiB.
pub fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(512)
}

/// Largest request whose block is [`rounded`] of it. A larger block may exceed the request by up to 1 MiB.
pub const MAX_ROUNDED_BYTES: u64 = 1 << 20;

/// Workspaces of a training's products: cuBLAS's for the threads of forward and backward, cuBLASLt's for the one whose layers have biases.
pub fn product_workspaces(profile: &Profile) -> u64 {
    2 * profile.gemm_workspace_bytes + profile.gemm_epilogue_workspace_bytes
}

/// A network of the articles, in f32, with its usual loss and optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Number of trained values.
    pub parameters: u64,
    /// Nodes of the graph of one step: one per operation, two per linear layer (its weight is transposed first), two for cross entropy.
    pub nodes: u64,
    /// Values in an example.
    features: u64,
    /// Bytes of an example's target.
    target_bytes: u64,
    /// Values that the network outputs for an example.
    outputs: u64,
    /// Values that the optimizer keeps for each parameter.
    states: u64,
    /// True if the loss is the mean squared error, which holds the memory of all squares under PyTorch's temporaries.
    squared_error: bool,
    /// True if a linear layer adds its bias inside the product, which takes the workspace of the library with epilogues.
    epilogue: bool,
}

impl Network {
    /// `simple-cnn` with Adam: 16 filters of 3·3·3 values, and a linear layer from 16·16·16 values to 10 classes.
    pub const SIMPLE_CNN: Self = Self {
        parameters: 16 * (3 * 3 * 3 + 1) + 10 * (16 * 16 * 16 + 1),
        nodes: 1 + 1 + 1 + 1 + 2 + 2,
        features: 3 * 32 * 32,
        target_bytes: 8,
        outputs: 10,
        states: 2,
        squared_error: false,
        epilogue: true,
    };

    /// `linear` with SGD: 10 values to one, by a matrix-vector product.
    pub const LINEAR: Self = Self {
        parameters: 10 + 1,
        nodes: 2 + 1,
        features: 10,
        target_bytes: 4,
        outputs: 1,
        states: 0,
        squared_error: true,
        epilogue: false,
    };

    /// `two-layer` with SGD: 10 values to 20, a ReLU, 20 to one.
    pub const TWO_LAYER: Self = Self {
        parameters: 20 * (10 + 1) + (20 + 1),
        nodes: 2 + 1 + 2 + 1,
        features: 10,
        target_bytes: 4,
        outputs: 1,
        states: 0,
        squared_error: true,
        epilogue: true,
    };

    /// Memory held after a step with `batch` examples. `None` under a profile that allocates workspaces anew for each product.
    pub fn held(&self, batch: usize, profile: &Profile) -> Option<Held> {
        let (batch, model) = (batch as u64, 4 * self.parameters);
        let epilogue = if self.epilogue { profile.gemm_epilogue_workspace_bytes } else { 0 };
        let squares = self.squared_error && profile.torch_temporaries;
        profile.keeps_workspaces.then_some(Held {
            parameters: model,
            gradients: model,
            optimizer: self.states * model,
            batch: batch * (4 * self.features + self.target_bytes),
            output: 4 * batch * self.outputs,
            loss: if squares { 4 * batch * self.outputs } else { 4 },
            workspaces: 2 * profile.gemm_workspace_bytes + epilogue,
        })
    }
}

/// The variables of a training script after a step and the libraries' workspaces, in requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Parameters.
    pub parameters: u64,
    /// Gradients, one per parameter.
    pub gradients: u64,
    /// The optimizer's state.
    pub optimizer: u64,
    /// Input and targets.
    pub batch: u64,
    /// The network's result.
    pub output: u64,
    /// The loss.
    pub loss: u64,
    /// Workspaces of the libraries of matrix products: one for each of the two threads, and one for products with a bias.
    pub workspaces: u64,
}

impl Held {
    /// Sum of all of them.
    pub fn total(&self) -> u64 {
        let Self { parameters, gradients, optimizer, batch, output, loss, workspaces } = self;
        parameters + gradients + optimizer + batch + output + loss + workspaces
    }
}
