//! What is done to the source of a chat template before it is compiled.
//!
//! 1. `{% generation %}` blocks, which mark the assistant's text for training, become
//!    `{% if true %}` blocks with the same white-space control.
//! 2. Limits. The compiler recurses over an expression and over `elif` chains, and a stack overflow
//!    cannot be caught, so the length of the code in one tag and the number of `elif` are bounded.
//! 3. Values are made shallow by construction: freeing, comparing and printing a value recurses
//!    too, and `{% set ns.x = [ns.x] %}` in a loop nests without bound. Each literal that makes a
//!    list, tuple or dict, and each assignment to a namespace, is passed through a function that
//!    refuses deep values (`template_values.rs`). The engine has no hook for this, so calls to it
//!    are written into the source.

use crate::error::{TextError, TextResult};

pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Code of one tag, white space and the inside of string literals not counted.
pub const MAX_TAG_CODE: usize = 16 << 10;
pub const MAX_ELIF: usize = 1000;
/// Functions and filters of ours that the source may not name.
pub const RESERVED_PREFIX: &str = "__octavo_";

const CHECK_LITERAL: &str = "__octavo_literal(";
const CHECK_MEMBER: &str = "__octavo_member(";
const CHECK_MEMBER_FILTER: &str = "|__octavo_member";

/// Words behind which an operand begins, so that `[` there opens a list and not a subscript. The
/// first word of a statement is another; elsewhere those are names: `{% set x = call['name'] %}`.
const OPERATOR_WORDS: [&str; 7] = ["in", "if", "else", "not", "and", "or", "is"];

pub fn prepare(source: &str) -> TextResult<String> {
    if source.len() > MAX_SOURCE_BYTES {
        let message =
            format!("a template of {} bytes; the limit is {MAX_SOURCE_BYTES}", source.len());
        return Err(TextError::exhausted(message));
    }
    if source.contains(RESERVED_PREFIX) {
        let message = format!("names that begin with {RESERVED_PREFIX} are reserved");
        return Err(TextError::invalid(message));
    }
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut elif_count = 0;
    let mut copied = 0;
    let mut at = 0;
    while let Some(offset) = source[at..].find('{') {
        let start = at + offset;
        let end = match source.as_bytes().get(start + 1) {
            Some(b'#') => match source[start + 2..].find("#}") {
                Some(length) => start + 2 + length + 2,
                None => break,
            },
            Some(b'{') => copy_tag(source, start, "}}", &mut copied, &mut out)?.end,
            Some(b'%') => {
                let tag = copy_tag(source, start, "%}", &mut copied, &mut out)?;
                elif_count += usize::from(tag.name == "elif");
                if tag.name == "raw" {
                    end_of_raw(source, tag.end)
                } else {
                    tag.end
                }
            }
            _ => start + 1,
        };
        at = end;
    }
    if elif_count > MAX_ELIF {
        let message = format!("{elif_count} elif tags in a template; the limit is {MAX_ELIF}");
        return Err(TextError::exhausted(message));
    }
    out.push_str(&source[copied..]);
    Ok(out)
}

/// The position behind `{% endraw %}`, whatever white space and signs it is written with.
fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(offset) = source[at..].find("{%") {
        let inner = at + offset + 2;
        let tail = source[inner..].trim_start_matches(['-', '+']).trim_start();
        if let Some(rest) = tail.strip_prefix("endraw") {
            let rest = rest.trim_start().trim_start_matches(['-', '+']);
            if rest.starts_with("%}") {
                return source.len() - rest.len() + 2;
            }
        }
        at = inner;
    }
    source.len()
}

struct Tag<'a> {
    name: &'a str,
    end: usize,
}

/// Copies the text up to the tag at `start` and the tag itself, rewritten, to `out`.
fn copy_tag<'a>(
    source: &'a str,
    start: usize,
    end_marker: &'static str,
    copied: &mut usize,
    out: &mut String,
) -> TextResult<Tag<'a>> {
    let mut scanner = TagScanner::new(source, start, end_marker);
    scanner.scan()?;
    let end = scanner.at + end_marker.len();
    out.push_str(&source[*copied..start]);
    *copied = end;
    let name = scanner.name;
    if name == "generation" || name == "endgeneration" {
        let statement = if name == "generation" { " if true " } else { " endif " };
        let body = &source[start + 2..end - 2];
        let sign = |present: bool, sign: char| present.then_some(sign).into_iter();
        out.push_str("{%");
        out.extend(body.chars().next().filter(|c| matches!(c, '-' | '+')));
        out.push_str(statement);
        out.extend(sign(body.ends_with('-'), '-'));
        out.extend(sign(body.ends_with('+'), '+'));
        out.push_str("%}");
    } else {
        scanner.edits.sort_by_key(|edit| edit.0);
        let mut from = start;
        for (position, text) in &scanner.edits {
            out.push_str(&source[from..*position]);
            out.push_str(text);
            from = *position;
        }
        out.push_str(&source[from..end]);
    }
    Ok(Tag { name, end })
}

/// What an opening bracket is.
enum Bracket {
    /// `[` or `{` of a literal, at this position.
    Literal(usize),
    /// `(` around an expression or a tuple, at this position.
    Group { at: usize, comma: bool },
    /// Subscript, call arguments, or the target of an assignment.
    Other,
}

/// Where in a `set` or `for` tag the scanner is.
#[derive(PartialEq)]
enum Place {
    Target,
    Expression,
}

struct TagScanner<'a> {
    source: &'a str,
    start: usize,
    at: usize,
    end_marker: &'static str,
    name: &'a str,
    place: Place,
    brackets: Vec<Bracket>,
    after_operand: bool,
    last_word_is_call: bool,
    /// For `set`: a dotted target, the start of the value, a comma or a filter at the top level.
    dotted_target: bool,
    value_start: Option<usize>,
    bare_comma: bool,
    block_filter: bool,
    code_length: usize,
    /// Insertions; several at one position keep the order in which they were found.
    edits: Vec<(usize, &'static str)>,
}

impl<'a> TagScanner<'a> {
    fn new(source: &'a str, start: usize, end_marker: &'static str) -> TagScanner<'a> {
        let signed = matches!(source.as_bytes().get(start + 2), Some(b'-' | b'+'));
        TagScanner {
            source,
            start,
            at: start + 2 + usize::from(signed),
            end_marker,
            name: "",
            place: Place::Expression,
            brackets: Vec::new(),
            after_operand: false,
            last_word_is_call: false,
            dotted_target: false,
            value_start: None,
            bare_comma: false,
            block_filter: false,
            code_length: 0,
            edits: Vec::new(),
        }
    }

    /// Reads to the end marker and leaves `at` on it.
    fn scan(&mut self) -> TextResult<()> {
        loop {
            let rest = &self.source[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(self.error("a tag is not closed"));
            };
            if self.brackets.is_empty() {
                let signed = usize::from(matches!(c, '-' | '+'));
                if rest[signed..].starts_with(self.end_marker) {
                    self.finish(self.at);
                    self.at += signed;
                    return Ok(());
                }
            }
            if c.is_whitespace() {
                self.at += c.len_utf8();
                continue;
            }
            match c {
                '\'' | '"' => self.read_string(c)?,
                c if c == '_' || c.is_alphanumeric() => self.read_word(),
                _ => self.read_symbol(c),
            }
            if self.code_length > MAX_TAG_CODE {
                let message = format!("a tag holds more than {MAX_TAG_CODE} characters of code");
                return Err(self.error(&message));
            }
        }
    }

    fn error(&self, message: &str) -> TextError {
        let line = 1 + self.source[..self.start].matches('\n').count();
        TextError::invalid(format!("{message} (line {line})"))
    }

    fn read_string(&mut self, quote: char) -> TextResult<()> {
        let mut characters = self.source[self.at + 1..].char_indices();
        while let Some((offset, c)) = characters.next() {
            if c == '\\' {
                characters.next();
            } else if c == quote {
                self.at += 1 + offset + 1;
                self.code_length += 1;
                self.after_operand = true;
                self.last_word_is_call = false;
                return Ok(());
            }
        }
        Err(self.error("a string literal is not closed"))
    }

    fn read_word(&mut self) {
        let rest = &self.source[self.at..];
        let length = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..length];
        let attribute = self.source[..self.at].ends_with('.');
        let first = self.name.is_empty() && self.end_marker == "%}";
        self.after_operand = attribute || !(first || OPERATOR_WORDS.contains(&word));
        self.last_word_is_call = first && word == "call";
        if first {
            self.name = word;
            if word == "set" || word == "for" {
                self.place = Place::Target;
            }
        } else if self.place == Place::Target && self.name == "for" && word == "in" {
            self.place = Place::Expression;
        }
        self.code_length += length;
        self.at += length;
    }

    fn read_symbol(&mut self, c: char) {
        let position = self.at;
        self.at += c.len_utf8();
        self.code_length += 1;
        let was_call = std::mem::take(&mut self.last_word_is_call);
        match c {
            '[' | '{' | '(' => {
                let bracket = self.classify(c, position, was_call);
                self.brackets.push(bracket);
                self.after_operand = false;
            }
            ']' | '}' | ')' => {
                match self.brackets.pop() {
                    Some(Bracket::Literal(open)) => self.wrap(open, self.at),
                    Some(Bracket::Group { at: open, comma: true }) => self.wrap(open, self.at),
                    _ => {}
                }
                self.after_operand = true;
            }
            ',' => {
                match self.brackets.last_mut() {
                    Some(Bracket::Group { comma, .. }) => *comma = true,
                    None if self.value_start.is_some() => self.bare_comma = true,
                    _ => {}
                }
                self.after_operand = false;
            }
            _ => {
                if self.place == Place::Target && self.name == "set" {
                    self.read_target_symbol(c);
                }
                self.after_operand = false;
            }
        }
    }

    fn classify(&self, c: char, position: usize, was_call: bool) -> Bracket {
        if self.place == Place::Target || was_call {
            return Bracket::Other;
        }
        match c {
            '{' => Bracket::Literal(position),
            '[' if !self.after_operand => Bracket::Literal(position),
            '(' if !self.after_operand => Bracket::Group { at: position, comma: false },
            _ => Bracket::Other,
        }
    }

    fn read_target_symbol(&mut self, c: char) {
        match c {
            '.' => self.dotted_target = true,
            '=' if self.brackets.is_empty() => {
                self.value_start = Some(self.at);
                self.place = Place::Expression;
            }
            '|' if self.brackets.is_empty() => {
                self.block_filter = true;
                self.place = Place::Expression;
            }
            _ => {}
        }
    }

    fn wrap(&mut self, open: usize, close: usize) {
        self.edits.push((open, CHECK_LITERAL));
        self.edits.push((close, ")"));
    }

    /// `{% set ns.x = value %}`, `{% set x = a, b %}` and `{% set ns.x | filter %}`.
    fn finish(&mut self, end: usize) {
        if self.name != "set" {
            return;
        }
        if let Some(start) = self.value_start {
            if self.dotted_target || self.bare_comma {
                let check = if self.dotted_target { CHECK_MEMBER } else { CHECK_LITERAL };
                // Parentheses of its own make a bare `a, b` one argument.
                self.edits.insert(0, (start, "("));
                self.edits.insert(0, (start, check));
                self.edits.push((end, "))"));
            }
        } else if self.dotted_target && self.block_filter {
            self.edits.push((end, CHECK_MEMBER_FILTER));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(source: &str) -> String {
        prepare(source).unwrap()
    }

    #[test]
    fn leaves_plain_templates_alone() {
        let source = "{% for m in messages -%} {{ m['role'] + x[1:] | trim }} {{- f(a, b)[0] -}}\
                      {%- endfor %}{# [1] #}{% raw %}{{ [1] }}{% endraw %} { [ } {%+ if a(b) +%}\
                      {% endif %}";
        assert_eq!(prepared(source), source);
    }

    #[test]
    fn wraps_literals_and_namespace_members() {
        assert_eq!(
            prepared("{{ [1, [2]] }}"),
            "{{ __octavo_literal([1, __octavo_literal([2])]) }}"
        );
        assert_eq!(
            prepared("{{ {'a': {'}}': 1}} }}"),
            "{{ __octavo_literal({'a': __octavo_literal({'}}': 1})}) }}"
        );
        assert_eq!(prepared("{% if x in ['a'] %}"), "{% if x in __octavo_literal(['a']) %}");
        assert_eq!(prepared("{{ (1, 2)[0] + (3) }}"), "{{ __octavo_literal((1, 2))[0] + (3) }}");
        assert_eq!(
            prepared("{% set x = a, b %}"),
            "{% set x =__octavo_literal(( a, b )) %}".replace(" )) %}", " ))%}")
        );
        assert_eq!(
            prepared("{% set ns.x = [y] -%}"),
            "{% set ns.x =__octavo_member(( __octavo_literal([y]) ))-%}"
        );
        assert_eq!(
            prepared("{% set ns.x | batch(2) %}{% endset %}"),
            "{% set ns.x | batch(2) |__octavo_member%}{% endset %}"
        );
        assert_eq!(
            prepared("{% set (a, b) = c %}{% for (k, v) in [d] %}"),
            "{% set (a, b) = c %}{% for (k, v) in __octavo_literal([d]) %}"
        );
        assert_eq!(
            prepared("{% call(a, b) f() %}{% macro m(a, b=[1]) %}"),
            "{% call(a, b) f() %}{% macro m(a, b=__octavo_literal([1])) %}"
        );
        assert_eq!(prepared("{% set x = call['a'] %}"), "{% set x = call['a'] %}");
        assert_eq!(prepared("{{ x.in[0] + x['a'][1] }}"), "{{ x.in[0] + x['a'][1] }}");
    }

    #[test]
    fn generation_blocks_become_conditions() {
        assert_eq!(
            prepared("a{%- generation -%}b{% endgeneration +%}c"),
            "a{%- if true -%}b{% endif +%}c"
        );
    }

    #[test]
    fn refuses_what_is_too_large() {
        assert!(prepare(&"x".repeat(MAX_SOURCE_BYTES + 1)).is_err());
        assert!(prepare(&format!("{{{{ {} }}}}", "-".repeat(MAX_TAG_CODE + 1))).is_err());
        assert!(prepare(&format!("{{{{ '{}' }}}}", "-".repeat(MAX_TAG_CODE + 1))).is_ok());
        assert!(prepare(&"{% elif x %}".repeat(MAX_ELIF + 1)).is_err());
        assert!(prepare("{{ __octavo_literal }}").is_err());
        let error = prepare("a\n{{ 'b").unwrap_err();
        assert_eq!(error.message, "a string literal is not closed (line 2)");
    }
}
