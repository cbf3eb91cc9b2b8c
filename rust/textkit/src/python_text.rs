//! Text as Python writes it: str() and repr() of values, float spelling, what counts as a space.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Text made of a value is refused beyond this size (a repeated list can be larger than memory).
pub const MAX_TEXT_BYTES: usize = 64 << 20;
/// Containers nested deeper than this are refused, since writing them recurses.
pub const MAX_NESTING: usize = 250;

pub fn too_deep() -> Error {
    let message = format!("a value is nested deeper than {MAX_NESTING} levels");
    Error::new(ErrorKind::InvalidOperation, message)
}

pub fn check_size(out: &str) -> Result<(), Error> {
    if out.len() <= MAX_TEXT_BYTES {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfFuel, format!("a text grew over {MAX_TEXT_BYTES} bytes")))
}

/// The shortest digits that read back as `number`, in Python's repr() layout. NaN and infinities
/// are spelled differently by str() and json.dumps, so those are the caller's.
pub fn write_finite_float(number: f64, out: &mut String) {
    if number == 0.0 {
        out.push_str(if number.is_sign_negative() { "-0.0" } else { "0.0" });
        return;
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    }
}

/// str(value).
pub fn python_str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::Undefined => Ok(String::new()),
        _ => {
            let mut out = String::new();
            write_repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_NESTING {
        return Err(too_deep());
    }
    check_size(out)?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            if number.is_nan() {
                out.push_str("nan");
            } else if number.is_infinite() {
                out.push_str(if number > 0.0 { "inf" } else { "-inf" });
            } else {
                write_finite_float(number, out);
            }
        }
        ValueKind::String => write_string_repr(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => write_sequence_repr(value, depth, out)?,
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

fn write_sequence_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    let tuple = value.is_tuple();
    let mut count = 0;
    out.push(if tuple { '(' } else { '[' });
    for item in value.try_iter()?.checked() {
        if count > 0 {
            out.push_str(", ");
        }
        write_repr(&item?, depth + 1, out)?;
        count += 1;
    }
    if tuple && count == 1 {
        out.push(',');
    }
    out.push(if tuple { ')' } else { ']' });
    Ok(())
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if (c as u32) < 0x10000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push(quote);
}

/// str.isprintable() for one character, save for unassigned code points.
fn is_printable(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0001}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || hidden)
}

/// What str.strip() and str.split() take off: Unicode white space and the four separators.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
    Both,
}

pub fn strip<'a>(text: &'a str, characters: Option<&str>, side: Side) -> &'a str {
    let remove = |c: char| characters.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if side == Side::Right { text } else { text.trim_start_matches(remove) };
    if side == Side::Left {
        text
    } else {
        text.trim_end_matches(remove)
    }
}

/// str.splitlines(): every line boundary that Python knows.
pub fn split_lines(text: &str, keep_ends: bool) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let boundary = matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        if !boundary {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && characters.next_if(|next| next.1 == '\n').is_some() {
            end += 1;
        }
        lines.push(Value::from(&text[start..if keep_ends { end } else { at }]));
        start = end;
    }
    if start < text.len() {
        lines.push(Value::from(&text[start..]));
    }
    lines
}
