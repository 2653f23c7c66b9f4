//! Kubernetes quantities, exactly.
//!
//! A quantity is held as whole billionths, the finest step that Kubernetes knows, so that sums over thousands of
//! nodes and pods lose nothing. It prints the way the API server does: what we publish and what the server stores
//! are the same text, and comparing them causes no write.

use std::{cmp::Ordering, fmt, hash, iter, ops, str::FromStr};

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// The largest value that the API server keeps for a binary quantity such as `16Ei`.
const BINARY_CAP: i128 = i64::MAX as i128 * NANO;

/// Digits beyond which a number cannot fit any more, whatever its suffix.
const MAX_DIGITS: usize = 256;

/// Suffixes of powers of ten, with their exponent.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Suffixes of powers of 1024, the first being 1024 itself.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An amount of some resource.
///
/// Equality and order are about the amount: `1`, `1000m` and `1e0` are equal. How it was written survives for
/// printing.
#[derive(Clone, Copy)]
pub struct Quantity {
    nano: i128,
    form: Form,
}

/// Which family of suffixes a quantity prints with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `500m`, `2`, `3M`.
    Decimal,
    /// `128Mi`.
    Binary,
    /// `3e6`.
    Exponent,
}

/// Why some text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// There are no digits.
    #[error("a quantity needs a number")]
    NoNumber,
    /// What follows the number is none of Kubernetes' suffixes.
    #[error("{0:?} is not a suffix of a quantity")]
    Suffix(String),
    /// Longer than any real amount.
    #[error("a quantity has at most {MAX_DIGITS} digits")]
    TooLong,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, form: Form::Decimal };

    /// So many whole units, printed with decimal suffixes.
    pub const fn units(amount: i64) -> Self {
        Self { nano: amount as i128 * NANO, form: Form::Decimal }
    }

    /// So many thousandths.
    pub const fn milli(amount: i64) -> Self {
        Self { nano: amount as i128 * (NANO / 1000), form: Form::Decimal }
    }

    /// So many bytes, printed with binary suffixes.
    pub const fn bytes(amount: i64) -> Self {
        Self { nano: amount as i128 * NANO, form: Form::Binary }
    }

    /// So many billionths.
    pub const fn from_nano(nano: i128, form: Form) -> Self {
        Self { nano, form }
    }

    /// The amount in billionths.
    pub const fn as_nano(self) -> i128 {
        self.nano
    }

    /// The family of suffixes it prints with.
    pub const fn form(self) -> Form {
        self.form
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// How many steps of `step` it takes to hold this amount: 1.2 CPUs are two whole ones. A step of nothing
    /// counts as the finest one.
    pub fn steps_up(self, step: Self) -> i64 {
        let step = step.nano.max(1);
        let whole = self.nano.div_euclid(step);
        let up = if self.nano.rem_euclid(step) == 0 { whole } else { whole.saturating_add(1) };
        clamp(up)
    }

    /// How many whole steps of `step` are in this amount.
    pub fn steps_down(self, step: Self) -> i64 {
        clamp(self.nano.div_euclid(step.nano.max(1)))
    }

    /// The amount in whole units, rounded up as Kubernetes does for integers.
    pub fn to_units(self) -> i64 {
        self.steps_up(Self::units(1))
    }

    /// The same amount without its fraction, towards nothing. For what can only be handed out whole.
    #[must_use]
    pub const fn floor_units(self) -> Self {
        Self { nano: self.nano - self.nano % NANO, form: self.form }
    }

    /// `permille` thousandths of this amount, rounded towards nothing.
    #[must_use]
    pub const fn share(self, permille: u16) -> Self {
        let (whole, rest) = (self.nano / 1000, self.nano % 1000);
        let share = permille as i128;
        Self { nano: whole.saturating_mul(share).saturating_add(rest * share / 1000), form: self.form }
    }

    /// This amount, or nothing if it is less.
    #[must_use]
    pub fn or_zero(self) -> Self {
        Self { nano: self.nano.max(0), form: self.form }
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Reads what the API server reads. Finer than a billionth is rounded away from nothing; larger than can be
    /// held is the largest that can.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::NoNumber);
        }
        if whole.len() + fraction.len() > MAX_DIGITS {
            return Err(QuantityError::TooLong);
        }
        let (scale, form) = Scale::of(suffix)?;
        let mut nano = scale.apply(whole, fraction);
        if form == Form::Binary {
            nano = nano.min(BINARY_CAP);
        }
        let form = if form == Form::Binary && nano > 0 && nano < NANO { Form::Decimal } else { form };
        Ok(Self { nano: if negative { -nano } else { nano }, form })
    }
}

/// The leading digits of a text, and what follows them.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// What a suffix multiplies with.
enum Scale {
    Ten(i32),
    Two(u32),
}

impl Scale {
    fn of(suffix: &str) -> Result<(Self, Form), QuantityError> {
        if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
            return Ok((Self::Ten(*exponent), Form::Decimal));
        }
        if let Some(power) = BINARY.iter().position(|s| *s == suffix) {
            return Ok((Self::Two(10 * (power as u32 + 1)), Form::Binary));
        }
        let unknown = || QuantityError::Suffix(suffix.chars().take(16).collect());
        let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(unknown)?;
        let (sign, number) = match exponent.as_bytes().first() {
            Some(b'-') => (-1, &exponent[1..]),
            Some(b'+') => (1, &exponent[1..]),
            _ => (1, exponent),
        };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(unknown());
        }
        // Beyond a few hundred every exponent means the same: too much to hold, or less than the finest step.
        let size = number.parse::<i32>().unwrap_or(i32::MAX).min(1_000);
        Ok((Self::Ten(sign * size), Form::Exponent))
    }

    /// The number in billionths: rounded up, and no more than fits.
    fn apply(&self, whole: &str, fraction: &str) -> i128 {
        let value = whole.bytes().chain(fraction.bytes());
        let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        match self {
            Self::Ten(exponent) => scaled(value, 9 + exponent - places),
            Self::Two(shift) => {
                // Billionths times a power of two may not fit although the sum of parts does, so the whole
                // number and the fraction go separately.
                let factor = 1i128 << shift;
                let whole = scaled(whole.bytes(), 9).saturating_mul(factor);
                let parts = binary_fraction(fraction, factor);
                whole.saturating_add(parts)
            }
        }
    }
}

/// Digits times a power of ten, rounded up.
fn scaled(digits: impl Iterator<Item = u8>, power: i32) -> i128 {
    let digits: Vec<u8> = digits.skip_while(|b| *b == b'0').collect();
    let kept =
        if power < 0 { digits.len().saturating_sub(power.unsigned_abs() as usize) } else { digits.len() };
    let mut value: i128 = 0;
    for digit in &digits[..kept] {
        value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    if digits[kept..].iter().any(|b| *b != b'0') {
        return value.saturating_add(1);
    }
    for _ in 0..power.max(0) {
        if value == 0 || value == i128::MAX {
            break;
        }
        value = value.saturating_mul(10);
    }
    value
}

/// `0.fraction` × `factor` in billionths, rounded up. Long division, one digit at a time from the right end, so
/// that no intermediate value exceeds what an `i128` holds.
fn binary_fraction(fraction: &str, factor: i128) -> i128 {
    let total = factor * NANO;
    // value = (d0 + (d1 + (d2 + …)/10)/10)/10 × total, kept as a whole part and a flag for what was cut off.
    let (mut value, mut inexact) = (0i128, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * total + value;
        inexact |= sum % 10 != 0;
        value = sum / 10;
    }
    value + i128::from(inexact)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.unsigned_abs() < 1024 * NANO.unsigned_abs();
        // Bytes that make no whole Ki have no binary suffix, and what has none is read as decimal: `2000` comes back
        // from the API server as `2k`. It is printed so in the first place, and comparing texts settles.
        if self.form == Form::Binary && !small && self.nano % (1024 * NANO) == 0 {
            let (mut value, mut suffix) = (self.nano / NANO, "");
            for larger in BINARY {
                if value % 1024 != 0 {
                    break;
                }
                (value, suffix) = (value / 1024, larger);
            }
            return write!(f, "{value}{suffix}");
        }
        let (mut value, mut exponent) = (self.nano, -9);
        while value % 1000 == 0 && (exponent < 18 || self.form == Form::Exponent) {
            (value, exponent) = (value / 1000, exponent + 3);
        }
        let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent).map_or("", |(suffix, _)| suffix);
        match (self.form, exponent) {
            (Form::Exponent, 0) => write!(f, "{value}"),
            (Form::Exponent, _) => write!(f, "{value}e{exponent}"),
            _ => write!(f, "{value}{suffix}"),
        }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl hash::Hash for Quantity {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl ops::Add for Quantity {
    type Output = Self;

    /// The sum. It prints like the first of the two that is not zero, as in Kubernetes.
    fn add(self, other: Self) -> Self {
        let form = if self.nano == 0 { other.form } else { self.form };
        Self { nano: self.nano.saturating_add(other.nano), form }
    }
}

impl ops::Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let form = if self.nano == 0 { other.form } else { self.form };
        Self { nano: self.nano.saturating_sub(other.nano), form }
    }
}

impl ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl ops::SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, |sum, one| sum + one)
    }
}

#[cfg(test)]
mod tests;
