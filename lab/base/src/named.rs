//! Choices that have names, and values that are written as text.

/// Names the values of a fieldless enum: `name`, `NAMES`, `Display`, `FromStr` and serde's traits all use the same names. Further spellings, which
/// are read and never written, follow a name: `Bf16 = "bf16" | "bfloat16"`. Case does not matter, nor does `_` instead of `-`.
#[macro_export]
macro_rules! named {
    ($type:ty, $what:literal, { $($variant:ident = $name:literal $(| $other:literal)*),+ $(,)? }) => {
        impl $type {
            /// Every name, in the order in which they are listed.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Name on command lines and in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match $crate::named::spelled(text).as_str() {
                    $($name $(| $other)* => Ok(Self::$variant),)+
                    _ => Err(format!("unknown {} {text:?}; known: {}", $what, Self::NAMES.join(", "))),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        $crate::as_text!($type);
    };
}

/// Returns a name as [`named!`](crate::named!) compares it: in lower case, with hyphens.
pub fn spelled(text: &str) -> String {
    text.trim().to_ascii_lowercase().replace('_', "-")
}

/// Implements serde's traits for a type that is read and shown as text (`FromStr`, `Display`).
#[macro_export]
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
