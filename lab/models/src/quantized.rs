//! Weights of linear layers in few bits, as bitsandbytes keeps them.

use serde::Serialize;

/// How bitsandbytes keeps the weights of linear layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quantized {
    /// Bits of a value: 4 or 8.
    pub bits: u8,
    /// `bnb_4bit_use_double_quant`
    pub twice: bool,
    /// The names of layers that stay as they are: `llm_int8_skip_modules`.
    pub kept: Vec<String>,
}

impl Quantized {
    /// The flag that asks for it.
    pub fn flag(&self) -> &'static str {
        if self.bits == 4 { "load-in-4bit" } else { "load-in-8bit" }
    }
}
