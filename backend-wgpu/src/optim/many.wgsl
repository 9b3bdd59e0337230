// The tensor of a workgroup: the last one that begins there or before.
fn tensor_of(group: u32) -> u32 {
    var low = p.table;
    var high = p.table + p.tensors;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (table_at(middle * 8u) <= group) { low = middle; } else { high = middle; }
    }
    return low;
}

