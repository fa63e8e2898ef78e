//! What two bytes in a row can do wrong, looked up by nibble: the tables of Keiser and Lemire, "Validating UTF-8 in
//! less than one instruction per byte" (2021).
//!
//! An error is a bit that all three look-ups give.

/// A lead byte without its continuation.
const TOO_SHORT: u8 = 1;
/// A continuation after ASCII.
const TOO_LONG: u8 = 1 << 1;
/// E0 and less than A0.
const OVERLONG_3: u8 = 1 << 2;
/// F4 and more than 8F, or F5 and beyond.
const TOO_LARGE: u8 = 1 << 3;
/// ED and more than 9F.
const SURROGATE: u8 = 1 << 4;
/// C0 or C1.
const OVERLONG_2: u8 = 1 << 5;
/// F0 and less than 90; F5 and beyond with such a byte share the bit.
const OVERLONG_4: u8 = 1 << 6;
/// Two continuations in a row: an error unless the second or third byte before asks for it.
const TWO_CONTS: u8 = 1 << 7;
const ANY_LOW: u8 = TOO_SHORT | TOO_LONG | TWO_CONTS;

/// By the high nibble of the first byte.
pub(super) const FIRST_HIGH: [u8; 16] = {
    let mut t = [TOO_LONG; 16];
    (t[8], t[9], t[10], t[11]) = (TWO_CONTS, TWO_CONTS, TWO_CONTS, TWO_CONTS);
    t[12] = TOO_SHORT | OVERLONG_2;
    t[13] = TOO_SHORT;
    t[14] = TOO_SHORT | OVERLONG_3 | SURROGATE;
    t[15] = TOO_SHORT | TOO_LARGE | OVERLONG_4;
    t
};
/// By the low nibble of the first byte.
pub(super) const FIRST_LOW: [u8; 16] = {
    let mut t = [ANY_LOW | TOO_LARGE | OVERLONG_4; 16];
    t[0] = ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4;
    t[1] = ANY_LOW | OVERLONG_2;
    (t[2], t[3]) = (ANY_LOW, ANY_LOW);
    t[4] = ANY_LOW | TOO_LARGE;
    t[13] |= SURROGATE;
    t
};
/// By the high nibble of the second byte.
pub(super) const SECOND_HIGH: [u8; 16] = {
    let mut t = [TOO_SHORT; 16];
    let cont = TOO_LONG | OVERLONG_2 | TWO_CONTS;
    t[8] = cont | OVERLONG_3 | OVERLONG_4;
    t[9] = cont | OVERLONG_3 | TOO_LARGE;
    (t[10], t[11]) = (cont | SURROGATE | TOO_LARGE, cont | SURROGATE | TOO_LARGE);
    t
};
