//! The C ABI of include/textkit.h.
#![allow(clippy::missing_safety_doc)] // include/textkit.h says what callers must hold to

use crate::decode_stream::DecodeStream;
use crate::error::{guard, last_error, Code, TextError, TextResult};
use crate::template::Template;
use crate::tokenizer::Tokenizer;
use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Memory of a Vec<u8>, handed to the caller.
#[repr(C)]
pub struct TextkitBytes {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

/// Memory of a Vec<u32>, handed to the caller.
#[repr(C)]
pub struct TextkitIds {
    data: *mut u32,
    size: usize,
    capacity: usize,
}

pub struct SharedTokenizer(Arc<Tokenizer>);

fn null(name: &str) -> TextError {
    TextError::invalid(format!("{name} is null"))
}

unsafe fn slice<'a, T>(data: *const T, size: usize, name: &str) -> TextResult<&'a [T]> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name)),
        (false, _) => Ok(std::slice::from_raw_parts(data, size)),
    }
}

unsafe fn utf8<'a>(data: *const u8, size: usize, name: &str) -> TextResult<&'a str> {
    std::str::from_utf8(slice(data, size, name)?)
        .map_err(|error| TextError::invalid(format!("{name} is not UTF-8: {error}")))
}

unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> TextResult<&'a T> {
    pointer.as_ref().ok_or_else(|| null(name))
}

unsafe fn put<T>(out: *mut T, value: T, name: &str) -> TextResult<()> {
    if out.is_null() {
        return Err(null(name));
    }
    out.write(value);
    Ok(())
}

unsafe fn put_text(out: *mut TextkitBytes, text: String) -> TextResult<()> {
    if out.is_null() {
        return Err(null("out"));
    }
    let mut bytes = ManuallyDrop::new(text.into_bytes());
    let (data, size, capacity) = (bytes.as_mut_ptr(), bytes.len(), bytes.capacity());
    out.write(TextkitBytes { data, size, capacity });
    Ok(())
}

#[no_mangle]
pub extern "C" fn textkit_last_error() -> *const c_char {
    last_error()
}

#[no_mangle]
pub unsafe extern "C" fn textkit_bytes_free(bytes: TextkitBytes) {
    if !bytes.data.is_null() {
        drop(Vec::from_raw_parts(bytes.data, bytes.size, bytes.capacity));
    }
}

#[no_mangle]
pub unsafe extern "C" fn textkit_ids_free(ids: TextkitIds) {
    if !ids.data.is_null() {
        drop(Vec::from_raw_parts(ids.data, ids.size, ids.capacity));
    }
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_new(
    json: *const u8,
    size: usize,
    out: *mut *mut SharedTokenizer,
) -> i32 {
    guard(|| {
        let tokenizer = Tokenizer::from_json(slice(json, size, "json")?)?;
        let shared = Box::into_raw(Box::new(SharedTokenizer(Arc::new(tokenizer))));
        put(out, shared, "out")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_free(tokenizer: *mut SharedTokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_encode(
    tokenizer: *const SharedTokenizer,
    text: *const u8,
    size: usize,
    add_special_tokens: bool,
    out: *mut TextkitIds,
) -> i32 {
    guard(|| {
        let tokenizer = reference(tokenizer, "tokenizer")?;
        if out.is_null() {
            return Err(null("out"));
        }
        let ids = tokenizer.0.encode(utf8(text, size, "text")?, add_special_tokens)?;
        let mut ids = ManuallyDrop::new(ids);
        let (data, size, capacity) = (ids.as_mut_ptr(), ids.len(), ids.capacity());
        put(out, TextkitIds { data, size, capacity }, "out")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_decode(
    tokenizer: *const SharedTokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let tokenizer = reference(tokenizer, "tokenizer")?;
        put_text(out, tokenizer.0.decode(slice(ids, count, "ids")?, skip_special_tokens)?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_vocab_size(
    tokenizer: *const SharedTokenizer,
    size: *mut usize,
    id_limit: *mut u32,
) -> i32 {
    guard(|| {
        let tokenizer = reference(tokenizer, "tokenizer")?;
        put(size, tokenizer.0.vocab_size(), "size")?;
        put(id_limit, tokenizer.0.id_limit(), "id_limit")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_token_to_id(
    tokenizer: *const SharedTokenizer,
    token: *const u8,
    size: usize,
    id: *mut i64,
) -> i32 {
    guard(|| {
        let tokenizer = reference(tokenizer, "tokenizer")?;
        let found = tokenizer.0.token_to_id(utf8(token, size, "token")?);
        put(id, found.map_or(-1, i64::from), "id")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_id_to_token(
    tokenizer: *const SharedTokenizer,
    id: u32,
    out: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let token = reference(tokenizer, "tokenizer")?.0.id_to_token(id);
        put_text(out, token.ok_or_else(|| TextError::invalid(format!("no token has id {id}")))?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_special_count(
    tokenizer: *const SharedTokenizer,
    count: *mut usize,
) -> i32 {
    guard(|| put(count, reference(tokenizer, "tokenizer")?.0.special_tokens().len(), "count"))
}

#[no_mangle]
pub unsafe extern "C" fn textkit_tokenizer_special_at(
    tokenizer: *const SharedTokenizer,
    index: usize,
    id: *mut u32,
    text: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let tokens = reference(tokenizer, "tokenizer")?.0.special_tokens();
        let token = tokens.into_iter().nth(index).ok_or_else(|| {
            TextError::invalid(format!("there is no special token number {index}"))
        })?;
        put(id, token.id, "id")?;
        put_text(text, token.text)
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_decode_stream_new(
    tokenizer: *const SharedTokenizer,
    skip_special_tokens: bool,
    prompt: *const u32,
    prompt_count: usize,
    out: *mut *mut DecodeStream,
) -> i32 {
    guard(|| {
        let tokenizer = reference(tokenizer, "tokenizer")?.0.clone();
        let prompt = slice(prompt, prompt_count, "prompt")?;
        let stream = DecodeStream::new(tokenizer, skip_special_tokens, prompt)?;
        put(out, Box::into_raw(Box::new(stream)), "out")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_decode_stream_free(stream: *mut DecodeStream) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}

#[no_mangle]
pub unsafe extern "C" fn textkit_decode_stream_push(
    stream: *mut DecodeStream,
    id: u32,
    out: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let stream = stream.as_mut().ok_or_else(|| null("stream"))?;
        put_text(out, stream.push(id)?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_decode_stream_flush(
    stream: *mut DecodeStream,
    out: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let stream = stream.as_mut().ok_or_else(|| null("stream"))?;
        put_text(out, stream.flush()?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_template_new(
    source: *const u8,
    size: usize,
    out: *mut *mut Template,
) -> i32 {
    guard(|| {
        let template = Template::compile(utf8(source, size, "source")?)?;
        put(out, Box::into_raw(Box::new(template)), "out")
    })
}

#[no_mangle]
pub unsafe extern "C" fn textkit_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn textkit_template_render(
    template: *const Template,
    context: *const u8,
    size: usize,
    out: *mut TextkitBytes,
) -> i32 {
    guard(|| {
        let template = reference(template, "template")?;
        put_text(out, template.render(utf8(context, size, "context")?)?)
    })
}

// The numbers that include/textkit.h gives to C.
const _: () = assert!(
    Code::InvalidArgument as i32 == 1
        && Code::DataLoss as i32 == 2
        && Code::RaisedByTemplate as i32 == 3
        && Code::ResourceExhausted as i32 == 4
        && Code::Internal as i32 == 5
);
