//! Tensors on the host, in the safetensors format: eight bytes with the length of a header, the header as JSON, the bytes of the tensors.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lab_base::error::{Error, Result};
use memcore::DType;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, SafeTensorError, TensorView};
use serde_json::{Map, Value, json};

/// The header's entry for everything that is not a tensor.
const METADATA: &str = "__metadata__";

/// A tensor's values on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
    /// The elements in row-major order, little endian.
    pub bytes: Vec<u8>,
}

/// State of a run, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingState {
    /// Everything that is not a tensor.
    pub metadata: BTreeMap<String, String>,
    /// The tensors.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl TrainingState {
    /// Writes the state as a safetensors file. Equal states give equal bytes: wide types first, so that each tensor is aligned, then by name.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut tensors: Vec<(&String, &HostTensor)> = self.tensors.iter().collect();
        tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.size()));
        let mut header = Map::new();
        header.insert(METADATA.into(), json!(self.metadata));
        let mut offset = 0;
        for (name, tensor) in &tensors {
            let end = offset + tensor.bytes.len();
            let entry = json!({ "dtype": name_of(tensor.dtype), "shape": tensor.dims, "data_offsets": [offset, end] });
            header.insert((*name).clone(), entry);
            offset = end;
        }
        let mut header = serde_json::to_vec(&Value::Object(header))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        tensors.iter().try_for_each(|(_, tensor)| out.write_all(&tensor.bytes))
    }
}

/// A safetensors file in memory.
pub struct StateFile<'a> {
    /// Name of the file in messages.
    pub name: String,
    /// Everything that is not a tensor.
    pub metadata: BTreeMap<String, String>,
    tensors: SafeTensors<'a>,
}

impl<'a> StateFile<'a> {
    /// Reads the header of a file with these bytes; the tensors stay where they are.
    ///
    /// # Errors
    /// [`Error::Usage`] for bytes that are not such a file, saying what is wrong and where.
    pub fn read(name: impl Into<String>, bytes: &'a [u8]) -> Result<Self> {
        let name = name.into();
        let wrong = |error| Error::usage(name.as_str(), problem(bytes, &error));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
        let metadata = header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let tensors = SafeTensors::deserialize(bytes).map_err(wrong)?;
        Ok(Self { name, metadata, tensors })
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names = self.tensors.names();
        names.sort_unstable();
        names
    }

    /// Returns the bytes of a tensor, which must have this type and these sizes.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the tensor, and what the file has instead.
    pub(super) fn bytes(&self, name: &str, dtype: DType, dims: &[usize]) -> Result<&[u8]> {
        let Ok(view) = self.tensors.tensor(name) else {
            return Err(self.wrong(format!("no tensor {name:?}; {dtype} {dims:?} is needed")));
        };
        if view.dtype() != dtype_of(dtype) || view.shape() != dims {
            let found = format!("{} {:?}", found_name(&view), view.shape());
            return Err(self.wrong(format!("tensor {name:?} is {found}; {dtype} {dims:?} is needed")));
        }
        Ok(view.data())
    }

    /// Whether the file has a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    /// Returns an error that names the file.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::usage(self.name.as_str(), problem)
    }
}

/// Formats the reader's error, with the place in the file.
fn problem(bytes: &[u8], error: &SafeTensorError) -> String {
    let said = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    match (error, said) {
        (SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength, Some(said)) => {
            format!(
                "not a safetensors file: byte 0 says that its header has {said} bytes, the file has {}",
                bytes.len()
            )
        }
        (SafeTensorError::HeaderTooSmall, _) => {
            format!("not a safetensors file: {} bytes, where 8 say how long its header is", bytes.len())
        }
        (SafeTensorError::MetadataIncompleteBuffer, _) => {
            format!("header at byte 8: its tensors do not end where the file of {} bytes does", bytes.len())
        }
        (error, _) => format!("header at byte 8: {error}"),
    }
}

fn found_name(view: &TensorView<'_>) -> String {
    let known = DType::ALL.into_iter().find(|dtype| dtype_of(*dtype) == view.dtype());
    known.map_or_else(|| view.dtype().to_string(), |dtype| dtype.to_string())
}

fn dtype_of(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
        DType::C64 => Dtype::C64,
    }
}

fn name_of(dtype: DType) -> String {
    dtype_of(dtype).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> TrainingState {
        let tensor =
            |dtype, dims: &[usize], bytes: &[u8]| HostTensor { dtype, dims: dims.to_vec(), bytes: bytes.to_vec() };
        TrainingState {
            metadata: [("format".to_string(), "pt".to_string()), ("step".into(), "3".into())].into(),
            tensors: [
                ("a.weight".to_string(), tensor(DType::F16, &[3], &[1, 2, 3, 4, 5, 6])),
                ("b".into(), tensor(DType::I64, &[], &[9; 8])),
                ("c".into(), tensor(DType::F32, &[0, 2], &[])),
            ]
            .into(),
        }
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        state().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written();
        let file = StateFile::read("x", &bytes).unwrap();
        assert_eq!(file.metadata, state().metadata);
        assert_eq!(file.names(), ["a.weight", "b", "c"]);
        assert_eq!(file.bytes("a.weight", DType::F16, &[3]).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(file.bytes("b", DType::I64, &[]).unwrap(), [9; 8]);
        assert!(file.bytes("c", DType::F32, &[0, 2]).unwrap().is_empty());
        let wrong = |name, dtype, dims: &[usize]| file.bytes(name, dtype, dims).unwrap_err().to_string();
        assert_eq!(wrong("d", DType::F32, &[1]), "x: no tensor \"d\"; float32 [1] is needed");
        assert_eq!(wrong("b", DType::I32, &[]), "x: tensor \"b\" is int64 []; int32 [] is needed");
        assert_eq!(
            wrong("a.weight", DType::F16, &[1, 3]),
            "x: tensor \"a.weight\" is float16 [3]; float16 [1, 3] is needed"
        );
        // Wide types first, the header a multiple of eight: every tensor is aligned.
        assert_eq!(u64::from_le_bytes(*bytes.first_chunk().unwrap()) % 8, 0);
        assert_eq!(bytes[bytes.len() - 14..], [9, 9, 9, 9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn lying_files_are_refused_with_the_place() {
        let bytes = written();
        let wrong = |bytes: &[u8]| StateFile::read("x", bytes).map(|_| ()).unwrap_err().to_string();
        let with = |length: u64| [&length.to_le_bytes()[..], &bytes[8..]].concat();
        assert_eq!(wrong(&[]), "x: not a safetensors file: 0 bytes, where 8 say how long its header is");
        for length in [u64::MAX, 1 << 40, 200_000_000, bytes.len() as u64] {
            assert!(wrong(&with(length)).contains(&format!("byte 0 says that its header has {length} bytes")));
        }
        assert!(wrong(&with(0)).contains("header at byte 8: "), "{}", wrong(&with(0)));
        assert!(wrong(&bytes[..bytes.len() - 1]).contains("do not end where the file of"));
        assert!(wrong(&[&bytes[..], &[0]].concat()).contains("do not end where the file of"));
        let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &[0; 16]].concat();
        let huge = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,16]}}";
        assert!(wrong(&header(huge)).contains("overflow"), "{}", wrong(&header(huge)));
        let beyond = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}";
        assert!(wrong(&header(beyond)).contains("`a`"), "{}", wrong(&header(beyond)));
        assert!(wrong(&header("{\"a\":3}")).contains("invalid JSON in header"));
        // Every prefix and every damaged byte of the header: an error or another file, never a panic.
        for end in 0..bytes.len() {
            wrong(&bytes[..end]);
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(file) = StateFile::read("x", &damaged) {
                    file.names();
                }
            }
        }
    }
}
