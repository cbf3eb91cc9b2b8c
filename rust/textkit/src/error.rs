//! Errors, the per-thread last message, and the guard that every C entry point runs in.

use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::fmt::Display;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// What went wrong; the numbers are the C enum `textkit_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 1,
    DataLoss = 2,
    RaisedByTemplate = 3,
    ResourceExhausted = 4,
    Internal = 5,
}

#[derive(Debug)]
pub struct TextError {
    pub code: Code,
    pub message: String,
}

impl TextError {
    pub fn new(code: Code, message: impl Into<String>) -> TextError {
        TextError { code, message: message.into() }
    }
    pub fn invalid(message: impl Into<String>) -> TextError {
        TextError::new(Code::InvalidArgument, message)
    }
    pub fn data_loss(error: impl Display) -> TextError {
        TextError::new(Code::DataLoss, error.to_string())
    }
    pub fn exhausted(message: impl Into<String>) -> TextError {
        TextError::new(Code::ResourceExhausted, message)
    }
    pub fn internal(error: impl Display) -> TextError {
        TextError::new(Code::Internal, error.to_string())
    }
}

pub type TextResult<T> = Result<T, TextError>;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The library never prints: a panic's place and message are kept for the guard instead.
fn install_silent_panic_hook() {
    if cfg!(test) {
        return; // the hook is the process's: failed assertions are to be seen
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            PANIC_PLACE.with(|place| *place.borrow_mut() = Some(info.to_string()));
        }));
    });
}

/// Runs `body`; a panic becomes an internal error that names its place.
pub fn catch_panics<T>(body: impl FnOnce() -> TextResult<T>) -> TextResult<T> {
    install_silent_panic_hook();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let place = PANIC_PLACE.with(|place| place.borrow_mut().take());
        Err(TextError::internal(place.unwrap_or_else(|| "panic".to_string())))
    })
}

/// Runs the body of a C entry point: 0 when it succeeds, else the code, with the message stored.
pub fn guard(body: impl FnOnce() -> TextResult<()>) -> i32 {
    match catch_panics(body) {
        Ok(()) => 0,
        Err(error) => {
            let text = error.message.replace('\0', "\u{FFFD}");
            LAST_ERROR.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
            error.code as i32
        }
    }
}

pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_internal_errors() {
        let error = catch_panics(|| -> TextResult<()> { panic!("broken") }).unwrap_err();
        assert_eq!(error.code, Code::Internal);
        assert_eq!(guard(|| panic!("broken")), Code::Internal as i32);
        assert_eq!(guard(|| Err(TextError::invalid("a\0b"))), Code::InvalidArgument as i32);
        let message = unsafe { std::ffi::CStr::from_ptr(last_error()) };
        assert_eq!(message.to_str().unwrap(), "a\u{FFFD}b");
    }
}
