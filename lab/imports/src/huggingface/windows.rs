//! Sliding windows of attention: layers in which a position sees only the tokens just before it.

use lab_base::error;

use super::keys::Keys;
use super::options::Options;

/// Keys of a configuration for windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowKeys {
    /// `sliding_window`, for all layers or none.
    One,
    /// `use_sliding_window` with `sliding_window`, for layers from `max_window_layers` on, or by `layer_types`.
    PerLayer,
    /// `sliding_window`, for all layers, or none if it is absent.
    OneIfSaid,
}

/// Windows of the layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Number of tokens that a position sees in a layer with a window.
    length: Option<usize>,
    /// Length in the configuration, whether a layer has a window or not.
    said: Option<usize>,
    /// True for layers that have one.
    layers: Vec<bool>,
    /// True if the model makes the mask of layers without a window, even if there are none.
    mixed: bool,
}

impl Windows {
    /// # Errors
    /// Layers of another kind than full and sliding attention; a window where the library has none.
    pub(super) fn read(keys: &Keys<'_>, from: WindowKeys, layers: usize) -> error::Result<Self> {
        let length = keys.optional_size("sliding_window")?;
        let kinds = keys.names("layer_types")?;
        let mixed = from == WindowKeys::PerLayer;
        let unsaid = from == WindowKeys::OneIfSaid && length.is_none();
        let none = unsaid || mixed && !keys.flag("use_sliding_window", false)? || keys.is_null("sliding_window");
        let said = if unsaid || keys.is_null("sliding_window") { None } else { Some(length.unwrap_or(4096)) };
        let length = if none { None } else { Some(length.unwrap_or(4096)) };
        let first = if mixed { keys.count("max_window_layers", 28)? } else { 0 };
        let slides: Vec<bool> = match kinds {
            Some(kinds) => {
                if kinds.len() != layers || kinds.iter().any(|k| !["full_attention", "sliding_attention"].contains(k)) {
                    return Err(keys.error("layer_types", format!("{kinds:?} for {layers} layers is not supported")));
                }
                kinds.iter().map(|kind| *kind == "sliding_attention").collect()
            }
            None => (0..layers).map(|i| length.is_some() && i >= first).collect(),
        };
        let uniform = slides.iter().all(|&slide| slide == length.is_some());
        if slides.contains(&true) && length.is_none() || !mixed && !uniform {
            return Err(keys.error("layer_types", "says another thing about the windows than sliding_window"));
        }
        Ok(Self { length, said, layers: slides, mixed })
    }

    pub(super) fn window_at(&self, layer: usize) -> Option<usize> {
        self.length.filter(|_| self.layers.get(layer).is_some_and(|&slides| slides))
    }

    /// Returns the length in the configuration, used or not.
    pub(super) fn said(&self) -> Option<usize> {
        self.said
    }

    /// Returns the length, if a layer has a window.
    pub(super) fn used(&self) -> Option<usize> {
        self.length.filter(|_| self.layers.contains(&true))
    }

    /// True if the mask of layers without a window is made.
    pub(super) fn masks_all(&self) -> bool {
        self.mixed || self.used().is_none()
    }

    /// True if a sequence of `time` tokens reaches the window.
    pub(super) fn reached_by(&self, time: usize) -> bool {
        self.layers.contains(&true) && self.length.is_some_and(|length| time >= length)
    }

    /// # Errors
    /// [`error::Error::Usage`] for what a window needs and is not supported, in a network with so many `positions`.
    pub(super) fn check(&self, keys: &Keys<'_>, options: &Options, positions: usize) -> error::Result<()> {
        let length = options.sequence.unwrap_or(positions);
        let reached = self.said.is_some_and(|window| length >= window);
        if options.rules().triangular_mask && (reached || self.mixed && self.used().is_some()) {
            let problem =
                "a window that the sequence reaches, or of some layers, is supported for transformers 5 alone";
            return Err(keys.error("sliding_window", problem));
        }
        if self.reached_by(length) && length == 1 {
            let problem = "a window that a batch of one token reaches is not supported";
            return Err(keys.error("sliding_window", problem));
        }
        Ok(())
    }
}
