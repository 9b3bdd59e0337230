//! The driver's figures about memory: heaps and budgets, read from Vulkan directly.

use memcore::backend::MemoryInfo;

use crate::gpu::Gpu;

/// Free and total memory of the device-local heap. With `VK_EXT_memory_budget` the driver reports the memory that other
/// processes leave; without it, free memory is the heap less the bytes that this process holds.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub(crate) fn memory_info(gpu: &Gpu, held_bytes: u64) -> Option<MemoryInfo> {
    use ash::vk;

    // SAFETY: the guard keeps the adapter alive, and nothing is destroyed through it.
    let adapter = unsafe { gpu.adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let physical = adapter.raw_physical_device();
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the handle belongs to this instance, both alive while `adapter` is.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }.ok()?;
    let has_budget = extensions
        .iter()
        .any(|extension| extension.extension_name_as_c_str().is_ok_and(|name| name == ash::ext::memory_budget::NAME));
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    if has_budget {
        properties = properties.push_next(&mut budget);
    }
    // SAFETY: as above; the chained structure is one that the device knows.
    unsafe { instance.get_physical_device_memory_properties2(physical, &mut properties) };
    let memory = properties.memory_properties;
    let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
    let own = |heap: &&(usize, &vk::MemoryHeap)| heap.1.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    let (index, heap) =
        heaps.iter().enumerate().collect::<Vec<_>>().iter().filter(own).max_by_key(|h| h.1.size).copied()?;
    let total_bytes = heap.size;
    let free_bytes = if has_budget && budget.heap_budget[index] > 0 {
        budget.heap_budget[index].saturating_sub(budget.heap_usage[index])
    } else {
        total_bytes.saturating_sub(held_bytes)
    };
    Some(MemoryInfo { free_bytes: free_bytes.min(total_bytes), total_bytes })
}

/// Metal does not report free memory.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub(crate) fn memory_info(_gpu: &Gpu, _held_bytes: u64) -> Option<MemoryInfo> {
    None
}
