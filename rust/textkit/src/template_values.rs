//! Functions that keep a template's values shallow, and the filters that could make them deep.

use crate::python_text::{too_deep, MAX_NESTING};
use minijinja::value::{Kwargs, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};

/// Nodes of one value, counted as often as they are reached; ten times a long conversation.
const MAX_NODES: usize = 1_000_000;
/// Below the nesting that printing allows, so that a request's own depth (128) fits as well.
const MAX_LITERAL_NESTING: usize = MAX_NESTING - 10;

struct Inspection {
    nodes: usize,
    /// Members of namespaces may hold neither namespaces nor opaque objects, which could form
    /// cycles and chains that cannot be seen from here.
    plain_only: bool,
}

impl Inspection {
    fn visit(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_LITERAL_NESTING {
            return Err(too_deep());
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let message = format!("a value has more than {MAX_NODES} parts");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        if self.plain_only {
            self.check_plain(value)?;
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()?.checked() {
                    self.visit(&item?, depth + 1)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    self.visit(&value.get_item(&key)?, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_plain(&self, value: &Value) -> Result<(), Error> {
        let Some(object) = value.as_object() else {
            return Ok(());
        };
        let name = object.type_name();
        let namespace = name.ends_with("::Namespace");
        // Macros and loops look like maps, and keep what they refer to out of sight.
        if namespace || name.starts_with("minijinja::vm::") || value.kind() == ValueKind::Plain {
            let what = if namespace { "a namespace" } else { "a macro, loop or other object" };
            let message = format!("{what} cannot be a member of a namespace");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        Ok(())
    }
}

fn inspect(state: &State, value: &Value, plain_only: bool) -> Result<(), Error> {
    let mut inspection = Inspection { nodes: 0, plain_only };
    let result = inspection.visit(value, 0);
    // Walking takes about a tenth of the time that an instruction takes.
    state.consume_fuel(inspection.nodes as u64 / 8)?;
    result
}

/// Lists, tuples and dicts as they are written in the source.
fn check_literal(state: &State, value: Value) -> Result<Value, Error> {
    inspect(state, &value, false)?;
    Ok(value)
}

/// A value that becomes a member of a namespace. Lazy sequences become lists here: otherwise a
/// loop could pile one on the other.
fn check_member(state: &State, value: Value) -> Result<Value, Error> {
    inspect(state, &value, true)?;
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    value.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>().map(Value::from)
}

pub fn register(env: &mut Environment<'static>) {
    env.add_function("__octavo_literal", check_literal);
    env.add_function("__octavo_member", check_member);
    env.add_filter("__octavo_member", check_member);
    env.add_function(
        "namespace",
        |state: &State, defaults: Option<ValueOrKwargs>| -> Result<Value, Error> {
            // Only its members are stored, so a namespace may be copied from another one.
            if let Some(members) = defaults.clone().map(ValueOrKwargs::into_value) {
                for name in members.try_iter()? {
                    check_member(state, members.get_item(&name)?)?;
                }
            }
            minijinja::functions::namespace(defaults)
        },
    );
    env.add_function(
        "dict",
        |state: &State, value: Option<Value>, items: Kwargs| -> Result<Value, Error> {
            check_literal(state, minijinja::functions::dict(value, items)?)
        },
    );
    env.add_filter(
        "batch",
        |state: &State, value: Value, count: usize, fill: Option<Value>| -> Result<Value, Error> {
            check_literal(state, minijinja::filters::batch(state, value, count, fill)?)
        },
    );
    env.add_filter(
        "slice",
        |state: &State, value: Value, count: usize, fill: Option<Value>| -> Result<Value, Error> {
            check_literal(state, minijinja::filters::slice(state, value, count, fill)?)
        },
    );
    env.add_filter(
        "groupby",
        |state: &State, value: Value, attribute: Option<&str>, options: Kwargs| {
            check_literal(state, minijinja::filters::groupby(value, attribute, options)?)
        },
    );
    // Not in Jinja2, and they nest: templates made for transformers cannot use them.
    env.remove_filter("zip");
    env.remove_filter("chain");
}
