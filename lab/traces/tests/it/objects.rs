//! Pickles that hold objects.

use lab_traces::snapshot::{Document, read_objects};

#[test]
fn objects_are_records_and_nothing_is_called() {
    // pickle.dumps(Path("a"), 2) in short: a class, its arguments, and a state.
    let pickle = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00echotR}X\x01\x00\x00\x00aK\x01sb.";
    let read = read_objects("it", pickle).unwrap();
    assert_eq!(read, serde_json::json!({"class": "os system", "args": ["echo"], "state": {"a": 1}}));
    let error = Document::read("it", pickle.as_slice()).unwrap_err().to_string();
    assert!(error.contains("vramlab does not read GLOBAL"), "a snapshot has none: {error}");
}

#[test]
fn what_is_not_an_object_is_refused() {
    for (pickle, why) in [
        (&b"\x80\x02}}b."[..], "BUILD of what is not an object"),
        (b"\x80\x02K\x01)R.", "not a class"),
        (b"\x80\x02cos\nsystem\n)R)R.", "not a class"),
        (b"\x80\x02cos", "a name"),
    ] {
        let error = read_objects("it", pickle).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // Lists of the list before, twice: 2^40 values of 200 bytes.
    let (mut all, depth) = (b"\x80\x02]q\x00".to_vec(), 40u8);
    for place in 0..depth {
        all.extend([b']', b'q', place + 1, b'(', b'h', place, b'h', place, b'e']);
    }
    // One value must be left: all of them as one tuple.
    let mut whole = vec![0x80, 2, b'('];
    whole.extend(&all[2..]);
    whole.extend(b"t.");
    let error = read_objects("it", &whole).unwrap_err().to_string();
    assert!(error.contains("a million values"), "{error}");
}
