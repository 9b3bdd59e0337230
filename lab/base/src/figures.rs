//! Numbers as text for people.

/// Formats bytes in the largest binary unit that fits, with at most two decimals: `1.5 GiB`.
pub fn short(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    // 1023.996 would be written as 1024: the next unit's 1.
    while value >= 1023.995 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), NAMES[unit])
}

/// Formats bytes, followed by the exact number: `1.5 GiB (1610612736)`. Small numbers are exact already.
pub fn both(bytes: u64) -> String {
    if bytes < 1024 { short(bytes) } else { format!("{} ({bytes})", short(bytes)) }
}

/// Removes exact numbers from a text: those that [`both`] put after a rounded one are dropped, and plain bytes (`1610612736 B`) are rounded.
pub fn rounded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |length| start + length);
        let (before, digits, after) = (&rest[..start], &rest[start..end], &rest[end..]);
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '.');
        let beside =
            before.strip_suffix("iB (").filter(|before| before.trim_end_matches(char::is_alphabetic).ends_with(' '));
        match (
            beside,
            after.strip_prefix(" bytes").unwrap_or(after).strip_prefix(')'),
            after.strip_prefix(" B"),
            digits.parse(),
        ) {
            (Some(_), Some(further), ..) => {
                out.push_str(before.trim_end_matches(" ("));
                rest = further;
            }
            (_, _, Some(further), Ok(bytes)) if is_word && !further.starts_with(char::is_alphanumeric) => {
                out.push_str(before);
                out.push_str(&short(bytes));
                rest = further;
            }
            _ => {
                out.push_str(&rest[..end]);
                rest = after;
            }
        }
    }
    out + rest
}

/// Formats a difference in bytes: `+512 B`, `-1.5 GiB`, `0 B`.
pub fn signed(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", short(bytes.unsigned_abs()))
}

/// Says that something does not fit: `no: 1.5 GiB more`, or `no` if the missing bytes are not known.
pub fn lacking(missing_bytes: Option<u64>) -> String {
    missing_bytes.map_or("no".into(), |missing| format!("no: {} more", short(missing)))
}

/// Formats `n thing` or `n things`, with the number in groups of three digits.
pub fn counted(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(n, ' '), if n == 1 { "" } else { "s" })
}

/// Formats a share in percent, to a tenth.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats a number in groups of three digits: `124 439 808`.
pub fn grouped(number: u64, separator: char) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(digit);
    }
    out
}

/// Formats a number with about four significant digits.
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.2}"),
        a if a >= 0.001 => format!("{x:.4}"),
        a if a.is_nan() => "nan".into(),
        _ => format!("{x:.2e}"),
    }
}

/// Median of the values: the middle one, or the mean of the two in the middle. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + upper) / 2.0 } else { upper })
}

/// The date of a moment, in UTC: `2026-11-21`. Days since 1970 in the calendar's own periods of 400 years, counted from a first
/// of March, so that a leap day comes last.
pub fn date(seconds_since_1970: u64) -> String {
    let days = (seconds_since_1970 / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_the_largest_unit() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(short(bytes), text);
        }
    }

    #[test]
    fn exact_numbers_stand_beside_rounded_ones() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB (1024)"), (68_887_040, "65.7 MiB (68887040)")];
        for (bytes, text) in cases {
            assert_eq!(both(bytes), text);
        }
        let text = format!("peak (at most) {}, then {} (2 of them); {}", both(3 << 29), both(1 << 20), both(3));
        assert_eq!(rounded(&text), "peak (at most) 1.5 GiB, then 1 MiB (2 of them); 3 B");
        assert_eq!([rounded(""), rounded("1 MiB ("), rounded("MiB (12)")], ["", "1 MiB (", "MiB (12)"]);
        assert_eq!(rounded("384.00 MiB (402653184 bytes) with 2 (3 bytes)"), "384.00 MiB with 2 (3 bytes)");
        let [plain, other] = ["128: 1610612736 B; 12 B, 1.5 B", "a2048 B, 2048 Bytes, 2048 by"].map(rounded);
        assert_eq!((&*plain, &*other), ("128: 1.5 GiB; 12 B, 1.5 B", "a2048 B, 2048 Bytes, 2048 by"));
        assert_eq!([0, 512, -1_610_612_736, i64::MIN].map(signed), ["0 B", "+512 B", "-1.5 GiB", "-8 EiB"]);
        assert_eq!([None, Some(3 << 29)].map(lacking), ["no", "no: 1.5 GiB more"]);
        assert_eq!([1, 2000].map(|n| counted(n, "step")), ["1 step", "2 000 steps"]);
    }

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 124_439_808].map(|n| grouped(n, ' ')), ["0", "999", "1 000", "124 439 808"]);
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [0.0, 12345.6, 12.345, 0.012345, 1e-5, f64::NAN].map(number),
            ["0", "12346", "12.35", "0.0123", "1.00e-5", "nan"]
        );
    }

    #[test]
    fn the_middle_is_what_counts() {
        assert_eq!(median(&[3.0, 1.0, 100.0]), Some(3.0));
        assert_eq!(median(&[1.0, 4.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn days_have_their_dates() {
        let day = |days: u64| date(days * 86_400 + 86_399);
        assert_eq!(
            [day(0), day(59), day(11_016), day(20_513), day(20_514)],
            ["1970-01-01", "1970-03-01", "2000-02-29", "2026-03-01", "2026-03-02"]
        );
        assert_eq!([0, 951_782_400, 1_795_910_400].map(date), ["1970-01-01", "2000-02-29", "2026-11-29"]);
    }
}
