//! Hostile values and damaged files.

use super::random::Random;

/// Values for any flag.
pub(crate) const HOSTILE: [&str; 46] = [
    "0",
    "-1",
    "1",
    "3",
    "2147483648",
    "4294967297",
    "9223372036854775808",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e-320",
    "NaN",
    "inf",
    "",
    " ",
    "é☃\u{1f4a9}",
    "\u{1b}[31mred\u{1b}]0;t\u{7}",
    "\u{9b}2J\u{202e}\u{2066}\u{7f}",
    "../../../nowhere/x",
    "/",
    "/dev/null",
    "/dev/full",
    "/dev/zero",
    "/nonexistent/x",
    "-",
    "a,b",
    "0,0",
    "1,2,3,",
    ",",
    "x:y",
    "cpu:0,cpu:0",
    "meta:0,meta:1",
    "1/0",
    "%s%n",
    "0x10",
    "1_000",
    "+5",
    "8GiB",
    "99999999999999999GiB",
    "100%",
    "-5%",
    "0.5",
    "true",
    "all",
    "none",
    "{}",
];

/// Replacements for numbers and names in a file.
const PIECES: [&str; 22] = [
    "0",
    "-1",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "-1e400",
    "0.5",
    "null",
    "true",
    "\"x\"",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[",
    "\"\\u001b[2J\\u0007\"",
    "\"\u{9b}\u{202e}\"",
    "\u{0}",
    "\u{1b}]0;t\u{7}",
    "<script>",
    ",",
    "NaN",
];

/// Damages a file in one to three places.
pub(crate) fn damaged(whole: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..1 + random.below(3) {
        once(&mut bytes, random);
    }
    bytes
}

fn once(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let len = random.below(40).min(bytes.len() - at);
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..at + len)),
        2 => bytes[at..at + len].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
        3 => bytes[at..at + len].fill(random.next() as u8),
        4 => {
            let copy = bytes[at..at + len].to_vec();
            let times = [1, 2, 1000][random.below(3)];
            let copies = copy.repeat(times);
            drop(bytes.splice(at..at, copies));
        }
        5 => drop(bytes.splice(at..at, random.pick(&PIECES).bytes())),
        _ => number_or_name(bytes, at, random),
    }
}

/// Replaces the next number or quoted text.
fn number_or_name(bytes: &mut Vec<u8>, from: usize, random: &mut Random) {
    let Some(start) = bytes[from..].iter().position(|byte| byte.is_ascii_digit() || *byte == b'"') else { return };
    let start = from + start;
    let quoted = bytes[start] == b'"';
    let goes_on = |byte: &u8| if quoted { *byte != b'"' } else { byte.is_ascii_digit() || *byte == b'.' };
    let len = bytes[start + 1..].iter().take_while(|byte| goes_on(byte)).count() + 1 + usize::from(quoted);
    let end = (start + len).min(bytes.len());
    drop(bytes.splice(start..end, random.pick(&PIECES).bytes()));
}
