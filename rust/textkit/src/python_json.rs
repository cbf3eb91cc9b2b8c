//! The `tojson` filter of chat templates: json.dumps(x, ensure_ascii=False) with its options.

use crate::python_text::{check_size, too_deep, write_finite_float, MAX_NESTING};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False), as transformers
/// registers it; unlike Jinja's own filter it escapes nothing for HTML.
pub fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = options.get::<Option<Value>>("ensure_ascii")?.or(ensure_ascii);
    let indent = options
        .get::<Option<Value>>("indent")?
        .or(indent)
        .filter(|indent| !indent.is_none() && !indent.is_undefined());
    let indent = match indent {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_string),
        Some(width) => Some(" ".repeat(i64::try_from(width)?.clamp(0, 1000) as usize)),
    };
    let separators =
        options.get::<Option<Value>>("separators")?.filter(|separators| !separators.is_none());
    let (item_separator, key_separator) = match separators {
        Some(pair) => (
            pair.get_item(&Value::from(0))?.to_string(),
            pair.get_item(&Value::from(1))?.to_string(),
        ),
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: ensure_ascii.is_some_and(|flag| flag.is_true()),
        indent,
        item_separator,
        key_separator,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

fn not_serializable(what: &str) -> Error {
    let message = format!("Object of type {what} is not JSON serializable");
    Error::new(ErrorKind::InvalidOperation, message)
}

impl JsonStyle {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_NESTING {
            return Err(too_deep());
        }
        check_size(out)?;
        match value.kind() {
            ValueKind::Undefined => return Err(not_serializable("Undefined")),
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(value, out)?,
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => self.write_map(value, depth, out)?,
            ValueKind::Seq | ValueKind::Iterable => self.write_sequence(value, depth, out)?,
            other => return Err(not_serializable(&other.to_string())),
        }
        Ok(())
    }

    fn write_map(&self, map: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        for key in map.try_iter()? {
            let item = map.get_item(&key)?;
            let name = match key.kind() {
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_string(),
                ValueKind::None => "null".to_string(),
                ValueKind::Number => {
                    let mut text = String::new();
                    write_number(&key, &mut text)?;
                    text
                }
                _ => key.to_string(),
            };
            entries.push((name, item));
        }
        if entries.is_empty() {
            out.push_str("{}");
            return Ok(());
        }
        if self.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        out.push('{');
        for (index, (name, item)) in entries.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.item_separator);
            }
            self.write_line_break(depth + 1, out);
            self.write_string(name, out);
            out.push_str(&self.key_separator);
            self.write(item, depth + 1, out)?;
        }
        self.write_line_break(depth, out);
        out.push('}');
        Ok(())
    }

    fn write_sequence(&self, items: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut empty = true;
        out.push('[');
        for item in items.try_iter()?.checked() {
            if !empty {
                out.push_str(&self.item_separator);
            }
            empty = false;
            self.write_line_break(depth + 1, out);
            self.write(&item?, depth + 1, out)?;
        }
        if !empty {
            self.write_line_break(depth, out);
        }
        out.push(']');
        Ok(())
    }

    fn write_line_break(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn write_number(value: &Value, out: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return Ok(());
    }
    let number = f64::try_from(value.clone())?;
    if number.is_nan() {
        out.push_str("NaN");
    } else if number.is_infinite() {
        out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        write_finite_float(number, out);
    }
    Ok(())
}
