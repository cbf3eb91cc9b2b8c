//! Methods of Python's str, list and dict that chat templates call. What minijinja-contrib's
//! pycompat does as Python does is left to it; here is what it lacks or does differently.

use crate::python_text::{is_space, python_str, split_lines, strip, Side};
use minijinja::value::{from_args, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Called for every method the engine itself does not know.
pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        // The engine charges for results only; searching a long text costs time too.
        state.consume_fuel(text.len() as u64 / 64)?;
        if let Some(result) = call_on_string(text, method, args)? {
            return Ok(result);
        }
    }
    match (value.kind(), method) {
        (ValueKind::Seq, "index") => {
            let (wanted,): (&Value,) = from_args(args)?;
            let position = value.try_iter()?.position(|item| item == *wanted);
            position.map(Value::from).ok_or_else(|| invalid("value is not in list"))
        }
        (ValueKind::Seq | ValueKind::Map, "copy") => {
            let () = from_args(args)?;
            Ok(value.clone())
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn tuple_of(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}

fn call_on_string(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            let side = match method {
                "lstrip" => Side::Left,
                "rstrip" => Side::Right,
                _ => Side::Both,
            };
            Value::from(strip(text, characters, side))
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            Value::from(split_lines(text, keep_ends.unwrap_or(false)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(separator) {
                Some((before, after)) => tuple_of([before, separator, after]),
                None => tuple_of([text, "", ""]),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => tuple_of([before, separator, after]),
                None => tuple_of(["", "", text]),
            }
        }
        "rsplit" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(args)?;
            right_split(text, separator, limit)?
        }
        "index" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = text.find(wanted).ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            Value::from(zero_fill(text, width)?)
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            return join(text, items).map(Some);
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// str.rsplit(): at most `limit` splits, counted from the right.
fn right_split(text: &str, separator: Option<&str>, limit: Option<i64>) -> Result<Value, Error> {
    let splits = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = text;
    match separator {
        Some("") => return Err(invalid("empty separator")),
        Some(separator) => {
            while let Some((before, after)) =
                rest.rsplit_once(separator).filter(|_| parts.len() < splits)
            {
                parts.push(after);
                rest = before;
            }
            parts.push(rest);
        }
        None => {
            rest = strip(rest, None, Side::Right);
            while let Some(at) = rest.rfind(is_space).filter(|_| parts.len() < splits) {
                let width = rest[at..].chars().next().map_or(1, char::len_utf8);
                parts.push(&rest[at + width..]);
                rest = strip(&rest[..at], None, Side::Right);
            }
            if !strip(rest, None, Side::Both).is_empty() {
                parts.push(rest);
            }
            if parts.last().is_some_and(|part| part.is_empty()) {
                parts.pop();
            }
        }
    }
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside_word = false;
    for c in text.chars() {
        if c.is_alphabetic() && !inside_word {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        inside_word = c.is_alphabetic();
    }
    out
}

fn zero_fill(text: &str, width: usize) -> Result<String, Error> {
    if width > 1 << 20 {
        return Err(invalid("zfill: the width is larger than 1048576"));
    }
    let missing = width.saturating_sub(text.chars().count());
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => text.split_at(text.len() - digits.len()),
        None => ("", text),
    };
    Ok(format!("{sign}{}{digits}", "0".repeat(missing)))
}

fn join(separator: &str, items: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for (index, item) in items.try_iter()?.checked().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(&python_str(&item?)?);
        crate::python_text::check_size(&out)?;
    }
    Ok(Value::from(out))
}
