// A partial result, and for extrema where it was found.
struct Best {
    x: $T,
    at: u32,
}

// Which of two; the earlier one of equals.
fn pick(a: Best, b: Best, is_a: bool, is_b: bool) -> Best {
    if (is_a && (!is_b || a.at <= b.at)) { return a; }
    return b;
}

fn join(a: Best, b: Best) -> Best {
    $JOIN
}
