//! Images of kernels in a program: tells whether there is one for the card.
//!
//! A program compiled by nvcc registers containers ("fat binaries") of images, and the kernels in each. Launching a
//! kernel that has no image for the card fails. Several public projects describe containers and their entries. Only
//! kind and architecture are read, and a container of another form counts as fitting. The suffixes `a` and `f` of
//! architectures are ignored.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::argument::In;
use crate::handles;
use crate::settings::settings;

/// Argument of a registration: a wrapper around a container, as `__fatBinC_Wrapper_t` in `fatbinary_section.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wrapper {
    magic: u32,
    version: u32,
    data: usize,
    more: usize,
}

const WRAPPER_MAGIC: u32 = 0x4662_43b1;
const CONTAINER_MAGIC: u32 = 0xba55_ed50;
/// Kinds of entries: PTX, which the driver compiles for later cards, and compiled code.
const PTX: u16 = 1;
const CODE: u16 = 2;

/// The image of a container that the card uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// No image is for this card.
    Missing,
    /// The container is not registered, or cannot be read.
    Unknown,
    /// Compiled code for this architecture.
    Code(u32),
    /// PTX for this architecture, which the driver compiles for the card.
    Ptx(u32),
}

#[derive(Default)]
struct Images {
    /// Each registered container: its address, and its image for the card, once that is known.
    containers: HashMap<usize, (usize, Option<Image>)>,
    /// Each kernel, by the address of its function on the host: its container and its name.
    kernels: HashMap<usize, (usize, String)>,
}

static IMAGES: LazyLock<Mutex<Images>> = LazyLock::new(Mutex::default);

fn images() -> MutexGuard<'static, Images> {
    IMAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a container under a new handle.
pub(crate) fn register(wrapper: In<Wrapper>) -> usize {
    let handle = handles::new();
    let data = wrapper.get().ok().filter(|wrapper| wrapper.magic == WRAPPER_MAGIC).map_or(0, |wrapper| wrapper.data);
    images().containers.insert(handle, (data, None));
    handle
}

/// Removes a container and its kernels.
pub(crate) fn unregister(container: usize) {
    let mut images = images();
    images.containers.remove(&container);
    images.kernels.retain(|_, kernel| kernel.0 != container);
}

/// Registers a kernel by the address of its function on the host.
pub(crate) fn register_kernel(container: usize, function: usize, name: String) {
    images().kernels.insert(function, (container, name));
}

/// True if a kernel has an image for the card, or was not registered here.
pub(crate) fn has_image(function: usize) -> bool {
    image(function) != Image::Missing
}

/// Returns the image of a kernel that the card uses.
pub(crate) fn image(function: usize) -> Image {
    let mut images = images();
    let Some((container, name)) = images.kernels.get(&function).cloned() else { return Image::Unknown };
    let Some((data, known)) = images.containers.get_mut(&container) else { return Image::Unknown };
    let image = *known
        .get_or_insert_with(|| architectures(*data).map_or(Image::Unknown, |all| best(&all, settings().capability)));
    if image == Image::Missing {
        crate::log::once("no_kernel_image", &name);
    }
    image
}

/// Returns the newest code that runs on the card, else the newest PTX.
fn best(images: &[(u16, u32)], capability: (i32, i32)) -> Image {
    let newest = |wanted: u16| {
        let fitting = images.iter().filter(|(kind, of)| *kind == wanted && fits(*kind, *of, capability));
        fitting.map(|(_, architecture)| *architecture).max()
    };
    newest(CODE).map(Image::Code).or_else(|| newest(PTX).map(Image::Ptx)).unwrap_or(Image::Missing)
}

/// True if an image runs on the card: compiled code on later cards of its generation, PTX on all later cards.
fn fits(kind: u16, architecture: u32, (major, minor): (i32, i32)) -> bool {
    let card = u32::try_from(major * 10 + minor).unwrap_or_default();
    match kind {
        PTX => architecture <= card,
        CODE => architecture / 10 == card / 10 && architecture <= card,
        _ => true,
    }
}

/// Returns kind and architecture of a container's images. `None` if the container has another form.
fn architectures(data: usize) -> Option<Vec<(u16, u32)>> {
    let word = |at: usize| In::<u32>::at(at).get().ok();
    let half = |at: usize| In::<u16>::at(at).get().ok();
    let long = |at: usize| In::<u64>::at(at).get().ok();
    if data == 0 || word(data)? != CONTAINER_MAGIC {
        return None;
    }
    let mut at = data + usize::from(half(data + 6)?);
    let end = at.checked_add(usize::try_from(long(data + 8)?).ok()?)?;
    let mut found = Vec::new();
    while at + 32 <= end {
        let (kind, header, payload) = (half(at)?, word(at + 4)?, long(at + 8)?);
        if header < 32 || !matches!(kind, PTX | CODE) {
            return None;
        }
        found.push((kind, word(at + 28)?));
        at = at.checked_add(usize::try_from(header).ok()?)?.checked_add(usize::try_from(payload).ok()?)?;
    }
    (at == end && !found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_takes_the_newest_code_for_it_before_ptx() {
        let images = [(CODE, 75), (CODE, 80), (CODE, 86), (CODE, 90), (PTX, 80)];
        assert_eq!(best(&images, (8, 9)), Image::Code(86));
        assert_eq!(best(&images, (8, 0)), Image::Code(80));
        assert_eq!(best(&images, (12, 0)), Image::Ptx(80));
        assert_eq!(best(&images, (7, 0)), Image::Missing);
    }

    #[test]
    fn images_run_on_later_cards_of_their_generation_and_ptx_on_all_later_ones() {
        assert!(fits(CODE, 80, (8, 6)));
        assert!(!fits(CODE, 86, (8, 0)));
        assert!(!fits(CODE, 80, (9, 0)));
        assert!(fits(PTX, 80, (12, 0)));
        assert!(!fits(PTX, 120, (9, 0)));
    }
}
