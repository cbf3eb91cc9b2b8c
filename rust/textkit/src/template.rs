//! Chat templates, rendered as transformers renders them (a sandboxed Jinja2 environment with
//! trim_blocks and lstrip_blocks, and a few functions of its own).

use crate::bounded_thread::{self, Bounds, Outcome};
use crate::error::{Code, TextError, TextResult};
use crate::python_text::{is_space, python_str, strip, Side};
use crate::{python_json, python_methods, template_source, template_values};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

pub const MAX_CONTEXT_BYTES: usize = 64 << 20;
pub const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// Instructions, and 64 bytes of data each. A message costs about 60;
/// templates that look back over all earlier messages (Gemma 4's) reach about 3,000 messages.
const FUEL: u64 = 16_000_000;
/// Compiling and rendering recurse, so they get a stack of known size. The other bounds are behind
/// all those above, for what those cannot see.
const BOUNDS: Bounds =
    Bounds { stack_bytes: 64 << 20, memory_bytes: 512 << 20, time: Duration::from_secs(60) };
const NAME: &str = "chat_template";

pub struct Template {
    env: Arc<Environment<'static>>,
    /// Set when a rendering had to be given up: it left a sleeping thread, and one is enough.
    given_up: AtomicBool,
}

/// The error of `raise_exception`, found again behind the engine's own error.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl Template {
    pub fn compile(source: &str) -> TextResult<Template> {
        let source = template_source::prepare(source)?;
        let outcome = bounded_thread::run(BOUNDS, || {
            let mut env = environment()?;
            env.add_template_owned(NAME, source).map_err(|error| explain(&error))?;
            Ok(env)
        });
        let env = match outcome {
            Outcome::Done(env) => Arc::new(env?),
            Outcome::GivenUp(what) => return Err(given_up(what)),
        };
        Ok(Template { env, given_up: AtomicBool::new(false) })
    }

    /// `context` is a JSON object whose members are the template's variables.
    pub fn render(&self, context: &str) -> TextResult<String> {
        if context.len() > MAX_CONTEXT_BYTES {
            let message =
                format!("a context of {} bytes; the limit is {MAX_CONTEXT_BYTES}", context.len());
            return Err(TextError::exhausted(message));
        }
        if self.given_up.load(Ordering::Relaxed) {
            return Err(given_up("memory or time before and is not rendered again"));
        }
        let (env, context) = (self.env.clone(), context.to_string());
        match bounded_thread::run(BOUNDS, move || render(&env, &context)) {
            Outcome::Done(result) => result,
            Outcome::GivenUp(what) => {
                self.given_up.store(true, Ordering::Relaxed);
                Err(given_up(what))
            }
        }
    }
}

fn given_up(what: &str) -> TextError {
    TextError::exhausted(format!("the template takes too much {what}"))
}

fn render(env: &Environment<'static>, context: &str) -> TextResult<String> {
    // serde_json refuses nesting beyond 128 levels, so recursing over it is safe.
    let context: serde_json::Value = serde_json::from_str(context)
        .map_err(|error| TextError::invalid(format!("context: {error}")))?;
    let serde_json::Value::Object(members) = &context else {
        return Err(TextError::invalid("context: not a JSON object"));
    };
    let reserved = template_source::RESERVED_PREFIX;
    if let Some(name) = members.keys().find(|name| name.starts_with(reserved)) {
        return Err(TextError::invalid(format!("context: the name {name} is reserved")));
    }
    let template = env.get_template(NAME).map_err(|error| explain(&error))?;
    let mut output = BoundedOutput { bytes: Vec::new(), full: false };
    let result = template.render_captured_to(value_of(&context), &mut output).map(drop);
    if output.full {
        let message = format!("the output is larger than {MAX_OUTPUT_BYTES} bytes");
        return Err(TextError::exhausted(message));
    }
    result.map_err(|error| explain(&error))?;
    String::from_utf8(output.bytes).map_err(TextError::internal)
}

struct BoundedOutput {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > MAX_OUTPUT_BYTES {
            self.full = true;
            return Err(io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn explain(error: &Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return TextError::new(Code::RaisedByTemplate, raised.0.clone());
        }
        cause = inner.source();
    }
    let code = match error.kind() {
        ErrorKind::OutOfFuel => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    let mut message = error.kind().to_string();
    if let Some(detail) = error.detail() {
        let _ = write!(message, ": {detail}");
    }
    if let Some(line) = error.line() {
        let _ = write!(message, " (line {line})");
    }
    TextError::new(code, message)
}

fn environment() -> TextResult<Environment<'static>> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(TextError::internal)?;
    env.set_syntax(syntax);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_debug(false);
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(python_methods::call);
    env.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&python_str(value)?).map_err(Error::from),
    });
    add_functions(&mut env);
    add_filters_and_tests(&mut env);
    template_values::register(&mut env);
    Ok(env)
}

fn add_functions(env: &mut Environment<'static>) {
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let text = python_str(message)?;
        let error = Error::new(ErrorKind::InvalidOperation, text.clone());
        Err(error.with_source(Raised(text)))
    });
    env.add_function("strftime_now", |format: &str| -> Result<String, Error> {
        let mut text = String::new();
        // Formatting, unlike to_string(), reports an unknown directive without a panic.
        write!(text, "{}", chrono::Local::now().format(format)).map_err(|_| {
            let message = format!("strftime_now: {format:?} is not a time format");
            Error::new(ErrorKind::InvalidOperation, message)
        })?;
        Ok(text)
    });
}

/// Filters and tests that minijinja has with other results than Jinja2.
fn add_filters_and_tests(env: &mut Environment<'static>) {
    env.add_filter("tojson", python_json::tojson);
    env.add_filter("string", |value: &Value| python_str(value));
    env.add_filter("trim", trim);
    env.add_filter("int", int);
    // Python: None is not iterable, and undefined values are.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Bytes
        )
    });
}

fn trim(value: &Value, characters: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let characters = characters.or(options.get("chars")?);
    options.assert_all_used()?;
    Ok(strip(&python_str(value)?, characters, Side::Both).to_string())
}

fn int(value: &Value, default: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = default.or(options.get("default")?);
    options.assert_all_used()?;
    Ok(to_int(value).map_or_else(|| default.unwrap_or_else(|| Value::from(0)), Value::from))
}

/// int(x), or int(float(x)) where that fails, as Jinja2's filter has it.
fn to_int(value: &Value) -> Option<i64> {
    match value.kind() {
        ValueKind::Bool => Some(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.as_i64(),
        ValueKind::Number => truncate(f64::try_from(value.clone()).ok()?),
        ValueKind::String => {
            let text = value.as_str()?.trim_matches(is_space).replace('_', "");
            text.parse::<i64>().ok().or_else(|| truncate(text.parse::<f64>().ok()?))
        }
        _ => None,
    }
}

fn truncate(number: f64) -> Option<i64> {
    (number.abs() < i64::MAX as f64).then_some(number as i64)
}

/// Integers stay integers, floats stay floats, and members keep their order.
fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (_, Some(integer)) => Value::from(integer),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(value_of).collect(),
        serde_json::Value::Object(members) => {
            Value::from_pairs(members.iter().map(|(name, item)| (name.as_str(), value_of(item))))
        }
    }
}

#[cfg(test)]
#[path = "template_test.rs"]
mod tests;
