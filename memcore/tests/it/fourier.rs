//! Fourier transforms beside the real PyTorch 2.11 with a stand-in for cuFFT: what each allocates and frees, in bytes, and the strides of its result.

use memcore::memory::Event;
use memcore::{Array, DType, Device, Tensor, ops};

fn device() -> Device {
    Device::meta("torch-2.11-sm90").unwrap()
}

fn empty(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::from_array(Array::empty(device, dims, dtype).unwrap())
}

/// Bytes that are allocated, and negative ones that are freed, while `f` makes a tensor; and the strides of that.
fn recorded(device: &Device, f: impl FnOnce() -> memcore::Result<Tensor>) -> (Vec<i64>, Vec<usize>) {
    device.set_history(true);
    let y = f().unwrap();
    let events = device.with_ledger(|ledger| {
        let mut bytes = std::collections::HashMap::new();
        let mut found = Vec::new();
        for event in ledger.history() {
            match event {
                Event::Alloc { id, requested_bytes, .. } => {
                    bytes.insert(*id, *requested_bytes as i64);
                    found.push(*requested_bytes as i64);
                }
                Event::Free { id, .. } => found.push(-bytes[id]),
                _ => {}
            }
        }
        found
    });
    (events, y.array().layout().strides().to_vec())
}

/// Checks a transform of a tensor of these sizes, changed by `view`, along axes.
macro_rules! transform {
    ($name:ident: $op:ident($dims:expr, $dtype:ident, $view:expr, $axes:expr $(, $more:expr)?) => $events:expr, $strides:expr) => {
        #[test]
        fn $name() {
            let device = device();
            let view: fn(&Tensor) -> memcore::Result<Tensor> = $view;
            let x = view(&empty(&device, &$dims, DType::$dtype)).unwrap();
            let (events, strides) = recorded(&device, || ops::$op(&x, &$axes $(, $more)?));
            assert_eq!((events.as_slice(), strides.as_slice()), (&$events[..], &$strides[..]));
        }
    };
}

fn same(x: &Tensor) -> memcore::Result<Tensor> {
    Ok(x.clone())
}

transform! { one_real_axis: fft_r2c([4, 8, 16, 16], F32, same, [3], true) => [36864], [1152, 144, 9, 1] }
transform! { an_inner_axis_is_copied: fft_r2c([4, 8, 16, 16], F32, same, [1], true) => [40960, 32768, -32768], [1280, 1, 80, 5] }
transform! { two_inner_axes: fft_r2c([4, 8, 16, 16], F32, same, [1, 2], true) => [36864, 32768, -32768], [1152, 9, 1, 72] }
transform! { a_transposed_picture: fft_r2c([4, 8, 16, 16], F32, |x| ops::transpose(x, 1, 3), [2, 3], true)
=> [40960, 32768, -32768], [1280, 80, 5, 1] }
transform! { four_real_axes_take_turns: fft_r2c([4, 8, 16, 16], F32, same, [0, 1, 2, 3], true)
=> [36864, 36864, -36864], [128, 16, 1, 512] }
transform! { the_first_two_axes_take_turns: fft_r2c([4, 8, 16, 16], F32, same, [0, 1], true)
=> [40960, 32768, -32768, 40960, -40960], [1, 4, 320, 20] }
transform! { both_axes_of_a_matrix_take_turns: fft_r2c([16, 16], F32, same, [0, 1], true) => [1152, 1152, -1152], [1, 16] }
transform! { five_real_axes: fft_r2c([2, 3, 4, 5, 6], F32, same, [0, 1, 2, 3, 4], true)
=> [3840, 3840, 3840, -3840, -3840], [1, 40, 10, 2, 120] }
transform! { six_real_axes: fft_r2c([2, 3, 4, 5, 6, 2], F32, same, [0, 1, 2, 3, 4, 5], true)
=> [11520, 11520, 11520, -11520, -11520], [3, 1, 180, 36, 6, 720] }
transform! { all_frequencies: fft_r2c([4, 8, 16, 16], F32, same, [1], false) => [65536, 32768, -32768], [2048, 1, 128, 8] }
transform! { floats_that_begin_at_an_odd_one: fft_r2c([4, 33], F32, |x| ops::narrow(x, 1, 1, 32), [1], true)
=> [544, 512, -512], [17, 1] }
transform! { every_second_float: fft_r2c([4, 8, 16, 15], F32, |x| ops::slice(x, 3, [0, 15, 2]), [2, 3], true)
=> [20480, 16384, -16384], [640, 80, 5, 1] }
transform! { columns_are_not_read: fft_r2c([4, 8, 16, 15], F32, |x| ops::transpose(x, 2, 3), [2, 3], true)
=> [34560, 30720, -30720], [1080, 135, 9, 1] }
transform! { sizes_of_one: fft_r2c([4, 1, 16, 1], F32, same, [2], true) => [288], [9, 9, 1, 9] }
transform! { one_complex_axis: fft_c2c([4, 8, 16, 9], C64, same, [3]) => [36864], [1152, 144, 9, 1] }
transform! { a_complex_inner_axis: fft_c2c([4, 8, 16, 9], C64, same, [1]) => [36864, 36864, -36864], [1152, 1, 72, 8] }
transform! { two_complex_axes_in_any_order: fft_c2c([2, 3, 4, 5, 6], C64, same, [4, 2])
=> [5760, 5760, -5760], [360, 120, 6, 24, 1] }
transform! { four_complex_axes: fft_c2c([4, 8, 16, 9], C64, same, [0, 1, 2, 3])
=> [36864, 36864, -36864], [1, 576, 36, 4] }
transform! { six_complex_axes: fft_c2c([2, 3, 4, 5, 6, 2], C64, same, [0, 1, 2, 3, 4, 5])
=> [11520, 11520, -11520], [12, 4, 1, 288, 48, 24] }
transform! { repeated_signals: fft_c2c([9], C64, |x| ops::expand(x, &[4, 9]), [1]) => [288, 288, -288], [9, 1] }
transform! { a_repeated_batch: fft_c2c([8, 1, 9], C64, |x| ops::expand(x, &[4, 8, 16, 9]), [3])
=> [36864, 36864, -36864], [144, 576, 9, 1] }
transform! { a_part_of_each_row: fft_c2c([4, 8, 16, 16], C64, |x| ops::slice(&ops::slice(x, 2, [0, 16, 2])?, 3, [0, 16, 3]), [2, 3])
=> [12288, 12288, -12288], [384, 48, 6, 1] }
transform! { to_real_numbers: fft_c2r([4, 8, 16, 9], C64, same, [3], 16) => [32768, 36864, -36864], [2048, 256, 16, 1] }
transform! { to_real_numbers_along_inner_axes: fft_c2r([4, 8, 16, 9], C64, same, [1, 2], 30)
=> [34560, 36864, 36864, -36864, -36864], [2160, 30, 1, 240] }
transform! { to_real_numbers_along_four_axes: fft_c2r([4, 8, 16, 9], C64, same, [0, 1, 2, 3], 16)
=> [32768, 36864, -36864], [2048, 256, 16, 1] }
transform! { to_real_numbers_of_a_matrix: fft_c2r([16, 9], C64, same, [0, 1], 16) => [1024, 1152, -1152], [16, 1] }
transform! { to_real_numbers_along_five_axes: fft_c2r([2, 3, 4, 5, 6], C64, same, [0, 1, 2, 3, 4], 10)
=> [4800, 5760, 5760, -5760, 5760, -5760, -5760], [10, 400, 100, 20, 1] }

#[test]
fn what_is_not_represented_is_refused() {
    let device = device();
    let half = empty(&device, &[4, 16], DType::F16);
    let error = ops::fft_r2c(&half, &[1], true).err().unwrap().to_string();
    assert!(error.contains("of float16 is not supported"), "{error}");
    let x = empty(&device, &[4, 16], DType::C64);
    assert!(ops::fft_c2c(&x, &[1, 1]).is_err() && ops::fft_c2c(&x, &[2]).is_err() && ops::fft_c2c(&x, &[]).is_err());
    assert!(ops::fft_c2r(&x, &[1], 32).is_err() && ops::fft_c2r(&x, &[1], 30).is_ok());
    for refused in [ops::exp(&x), ops::div(&x, &x), ops::add(&x, &empty(&device, &[4, 16], DType::F64))] {
        assert!(refused.is_err());
    }
}
