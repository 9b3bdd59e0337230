//! Shapes and views for testing elementwise kernels.

use memcore::DType;

use super::common::MANY;
use crate::case::CaseBuilder;
use crate::data::Data;

/// A shape, and how inputs and output view it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Contiguous,
    /// Inputs are stored column by column.
    Transposed,
    /// The output is stored column by column.
    TransposedOut,
    /// Inputs repeat one row.
    BroadcastRow,
    /// Inputs repeat one column.
    BroadcastColumn,
    /// Inputs repeat one element.
    BroadcastScalar,
    /// No dimensions.
    Scalar,
    /// Everything starts a few elements into its buffer.
    Offset,
    /// Rows of inputs and output have gaps between them.
    Gapped,
    /// Four dimensions in another order.
    Permuted,
    /// Six dimensions, one of them repeated in the middle; no two can be merged.
    SixDims,
    Empty,
    One,
    Length257,
    /// More rows than a launch has groups, with gaps.
    ManyRows,
}

impl Form {
    /// All forms, the plain one first.
    pub(crate) const ALL: [Form; 15] = [
        Form::Contiguous,
        Form::Transposed,
        Form::TransposedOut,
        Form::BroadcastRow,
        Form::BroadcastColumn,
        Form::BroadcastScalar,
        Form::Scalar,
        Form::Offset,
        Form::Gapped,
        Form::Permuted,
        Form::SixDims,
        Form::Empty,
        Form::One,
        Form::Length257,
        Form::ManyRows,
    ];

    /// The forms that are tried for this type: the one that tests the launch only in f32.
    pub(crate) fn forms(dtype: DType) -> impl Iterator<Item = Form> {
        Self::ALL.into_iter().filter(move |form| dtype == DType::F32 || *form != Form::ManyRows)
    }

    /// True if the form changes how inputs are viewed, so that each of several inputs is worth trying.
    pub(crate) fn is_about_inputs(self) -> bool {
        use Form::{BroadcastColumn, BroadcastRow, BroadcastScalar, Offset, Permuted, SixDims, Transposed};
        matches!(self, Transposed | BroadcastRow | BroadcastColumn | BroadcastScalar | Offset | Permuted | SixDims)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Form::Contiguous => "contiguous",
            Form::Transposed => "transposed",
            Form::TransposedOut => "transposed_out",
            Form::BroadcastRow => "broadcast_row",
            Form::BroadcastColumn => "broadcast_column",
            Form::BroadcastScalar => "broadcast_scalar",
            Form::Scalar => "scalar",
            Form::Offset => "offset",
            Form::Gapped => "gapped",
            Form::Permuted => "permuted",
            Form::SixDims => "six_dims",
            Form::Empty => "empty",
            Form::One => "one",
            Form::Length257 => "length_257",
            Form::ManyRows => "many_rows",
        }
    }

    /// Sizes of the output.
    pub(crate) fn dims(self) -> &'static [usize] {
        match self {
            Form::Scalar => &[],
            Form::Permuted => &[2, 5, 3, 4],
            Form::SixDims => &[2, 3, 2, 3, 2, 3],
            Form::Empty => &[0, 4],
            Form::One => &[1],
            Form::Length257 => &[257],
            Form::ManyRows => &[MANY, 2],
            _ => &[5, 7],
        }
    }

    /// Adds an input, viewed as this form says if `viewed`, else plainly.
    pub(crate) fn read(self, case: CaseBuilder, name: &'static str, data: Data, viewed: bool) -> CaseBuilder {
        let dims = self.dims();
        match self {
            _ if !viewed => case.read(name, dims, data),
            Form::Transposed => case.read(name, dims, data).transposed(0, 1),
            Form::BroadcastRow => case.read(name, &[7], data).broadcast(dims),
            Form::BroadcastColumn => case.read(name, &[5, 1], data).broadcast(dims),
            Form::BroadcastScalar => case.read(name, &[], data).broadcast(dims),
            Form::Offset => case.read(name, dims, data).offset(3),
            Form::Gapped | Form::ManyRows => case.read(name, dims, data).gapped(1),
            Form::Permuted => case.read(name, dims, data).transposed(1, 3),
            Form::SixDims => case.read(name, dims, data).transposed(3, 5).broadcast_axis(2),
            _ => case.read(name, dims, data),
        }
    }

    /// Adds the output.
    pub(crate) fn write(self, case: CaseBuilder, name: &'static str) -> CaseBuilder {
        let case = case.write(name, self.dims());
        match self {
            Form::TransposedOut => case.transposed(0, 1),
            Form::Offset => case.offset(5),
            Form::Gapped | Form::ManyRows => case.gapped(3),
            Form::Permuted => case.transposed(0, 2),
            _ => case,
        }
    }
}
