//! textkit: Hugging Face tokenizers and chat templates for Octavo, behind the C ABI of
//! include/textkit.h. Input is untrusted: whatever a file or request holds must come back as an
//! error and never end the process.

mod bounded_thread;
mod decode_stream;
mod error;
mod ffi;
mod python_json;
mod python_methods;
mod python_text;
mod template;
mod template_source;
mod template_values;
mod tokenizer;
