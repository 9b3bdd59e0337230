//! Networks that PyTorch exported have PyTorch's losses on an adapter, too.

use std::sync::Arc;

use backend_wgpu::Wgpu;
use memcore::Device;
use memcore::backend::Backend;

use crate::{alone, losses};

#[test]
fn training_on_an_adapter_gives_pytorchs_losses() {
    let _alone = alone();
    let Some(backend) = conformance::or_skip("wgpu", Wgpu::open(0)).map(Arc::new) else { return };
    losses::are_pytorchs(|| Device::builder(backend.clone() as Arc<dyn Backend>).build());
}
