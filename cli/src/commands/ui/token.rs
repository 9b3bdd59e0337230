//! Secrets that an address has.

use std::io;

/// Returns 128 random bits, as text.
///
/// # Errors
/// A system without random numbers.
pub(super) fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that does not tell where the difference is.
pub(super) fn is_same(secret: &str, given: &str) -> bool {
    let pairs = secret.bytes().zip(given.bytes());
    let differs = pairs.fold(0, |all, (one, other)| std::hint::black_box(all | (one ^ other)));
    secret.len() == given.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_eq!(one.len(), 32);
        assert!(is_same(&one, &one.clone()) && !is_same(&one, &other));
        assert!(!is_same(&one, &one[1..]) && !is_same(&one, "") && !is_same(&one, &format!("{one}0")));
    }
}
