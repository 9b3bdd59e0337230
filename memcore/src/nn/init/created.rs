//! Lists of what an [`Init`] has created.

use super::Init;
use crate::array::Array;
use crate::memory::Category;
use crate::nn::converted::{Converted, Untrained};
use crate::nn::parameter::{Copied, Parameter};
use crate::nn::slots::{ListSlot, VariableSlot};

impl Init {
    /// Everything that was created, for the same model in another type.
    #[doc(hidden)]
    pub fn into_converted(self) -> Converted {
        let shared = &self.shared;
        Converted {
            parameters: shared.parameters.take(),
            buffers: shared.buffers.take(),
            constants: shared.constants.take(),
            plain: shared.plain.take(),
            quantized: shared.quantized.take(),
        }
    }

    /// The tensors of the model that are not trained.
    #[doc(hidden)]
    pub fn untrained(&self) -> Untrained {
        let buffers = self.shared.buffers.borrow();
        let constants = self.shared.constants.borrow();
        let all = buffers.iter().map(|(_, array)| array).chain(constants.iter());
        let (frozen, held): (Vec<&Array>, Vec<&Array>) =
            all.partition(|array| array.storage().category() == Category::Parameter);
        let sizes = |arrays: Vec<&Array>| arrays.into_iter().map(|array| (array.numel(), array.dtype())).collect();
        let (frozen, mut buffers): (Vec<_>, Vec<_>) = (sizes(frozen), sizes(held));
        buffers.extend(self.shared.plain.borrow().iter().map(|array| (array.numel(), array.dtype())));
        Untrained { frozen, buffers }
    }

    /// All parameters created so far, in order.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.shared.parameters.borrow().clone()
    }

    /// All buffers created so far, in order, with their paths.
    pub fn buffers(&self) -> Vec<(String, Array)> {
        self.shared.buffers.borrow().clone()
    }

    /// All constants created so far, in order.
    pub fn constants(&self) -> Vec<Array> {
        self.shared.constants.borrow().clone()
    }

    /// The variables created so far.
    #[doc(hidden)]
    pub fn variables(&self) -> Vec<VariableSlot> {
        self.shared.variables.borrow().clone()
    }

    /// The lists created so far.
    #[doc(hidden)]
    pub fn lists(&self) -> Vec<ListSlot> {
        self.shared.lists.borrow().clone()
    }

    /// Parameters that exist on two devices, so far.
    #[doc(hidden)]
    pub fn copies(&self) -> Vec<Copied> {
        self.shared.copies.borrow().clone()
    }
}
