//! Pickle's opcodes: those that build plain data, and the names of those that are refused.

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const BINFLOAT: u8 = b'G';
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const NONE: u8 = b'N';
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const APPEND: u8 = b'a';
pub(super) const DICT: u8 = b'd';
pub(super) const APPENDS: u8 = b'e';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const LIST: u8 = b'l';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const SETITEM: u8 = b's';
pub(super) const TUPLE: u8 = b't';
pub(super) const SETITEMS: u8 = b'u';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const PROTO: u8 = 0x80;
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const LONG1: u8 = 0x8a;
pub(super) const LONG4: u8 = 0x8b;
pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
pub(super) const BINUNICODE8: u8 = 0x8d;
pub(super) const MEMOIZE: u8 = 0x94;
pub(super) const FRAME: u8 = 0x95;

// What looks up, calls or fills objects of classes: refused, or kept as records.
pub(super) const GLOBAL: u8 = b'c';
pub(super) const STACK_GLOBAL: u8 = 0x93;
pub(super) const REDUCE: u8 = b'R';
pub(super) const NEWOBJ: u8 = 0x81;
pub(super) const BUILD: u8 = b'b';

/// Explains why an opcode is refused that builds no plain data.
pub(super) fn refusal(opcode: u8) -> String {
    let (name, why) = match opcode {
        GLOBAL => ("GLOBAL", CALLS),
        STACK_GLOBAL => ("STACK_GLOBAL", CALLS),
        REDUCE => ("REDUCE", CALLS),
        BUILD => ("BUILD", CALLS),
        b'i' => ("INST", CALLS),
        b'o' => ("OBJ", CALLS),
        NEWOBJ => ("NEWOBJ", CALLS),
        0x92 => ("NEWOBJ_EX", CALLS),
        0x82 => ("EXT1", CALLS),
        0x83 => ("EXT2", CALLS),
        0x84 => ("EXT4", CALLS),
        b'P' => ("PERSID", CALLS),
        b'Q' => ("BINPERSID", CALLS),
        0x97 => ("NEXT_BUFFER", ELSEWHERE),
        0x98 => ("READONLY_BUFFER", ELSEWHERE),
        b'B' => ("BINBYTES", FOREIGN),
        b'C' => ("SHORT_BINBYTES", FOREIGN),
        0x8e => ("BINBYTES8", FOREIGN),
        0x96 => ("BYTEARRAY8", FOREIGN),
        b'T' => ("BINSTRING", FOREIGN),
        b'U' => ("SHORT_BINSTRING", FOREIGN),
        0x8f => ("EMPTY_SET", FOREIGN),
        0x90 => ("ADDITEMS", FOREIGN),
        0x91 => ("FROZENSET", FOREIGN),
        b'0' => ("POP", FOREIGN),
        b'1' => ("POP_MARK", FOREIGN),
        b'2' => ("DUP", FOREIGN),
        b'F' | b'I' | b'L' | b'S' | b'V' | b'g' | b'p' => ("an opcode of protocol 0", FOREIGN),
        other => return format!("{other:#04x} is not a pickle opcode"),
    };
    format!("vramlab does not read {name}: {why}")
}

const CALLS: &str = "it runs code or makes objects of classes, and a snapshot is plain data";
const ELSEWHERE: &str = "it takes data that is not in the file";
const FOREIGN: &str = "no snapshot has it";
