//! Text from token ids, one id at a time.
//!
//! Decoding single tokens is wrong (a character may span tokens, a leading space may depend on the
//! token before), decoding everything at each step is quadratic. So a short window is kept:
//! `settled` ids whose text has been given out and which serve as context, then `pending` ids. Text
//! is the part of decode(window) behind what was given out, as in Hugging Face's DecodeStream.
//! Three things differ from it: the end of a text can be flushed, a run of undecodable bytes is cut
//! into pieces so that the window stays short, and text that no longer extends what was given out
//! is not an error.

use crate::error::TextResult;
use crate::tokenizer::Tokenizer;
use std::sync::Arc;

const REPLACEMENT: char = '\u{FFFD}';
/// A UTF-8 character has at most 4 bytes, so an unfinished one shows as at most 3 replacements.
const MAX_UNFINISHED_BYTES: usize = 3;
/// So many pending ids without an end of the last character make the window be cut.
const MAX_PENDING: usize = 8;
/// Prompt ids looked at for context, and the bound where the last ones have no text.
const CONTEXT_IDS: usize = 6;
const MAX_CONTEXT_IDS: usize = 96;

pub struct DecodeStream {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
    window: Vec<u32>,
    settled: usize,
    /// The text of the window that was given out already.
    given: String,
}

impl DecodeStream {
    /// `prompt` is context: its text is not given out again, but it decides about leading spaces.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        skip_special_tokens: bool,
        prompt: &[u32],
    ) -> TextResult<DecodeStream> {
        let mut stream = DecodeStream {
            tokenizer,
            skip_special_tokens,
            window: Vec::new(),
            settled: 0,
            given: String::new(),
        };
        stream.prime(prompt)?;
        Ok(stream)
    }

    fn prime(&mut self, prompt: &[u32]) -> TextResult<()> {
        let ids: Vec<u32> = prompt.iter().copied().filter(|&id| !self.is_silent(id)).collect();
        let mut count = CONTEXT_IDS.min(ids.len());
        loop {
            self.window = ids[ids.len() - count..].to_vec();
            self.given = self.decode(&self.window)?;
            if !self.given.is_empty() || count == ids.len() || count >= MAX_CONTEXT_IDS {
                break;
            }
            count = (2 * count).min(ids.len());
        }
        self.settled = self.window.len();
        Ok(())
    }

    /// Takes the next id; the result is empty while a character is unfinished.
    pub fn push(&mut self, id: u32) -> TextResult<String> {
        // Ids without text would lengthen the window for ever.
        if self.is_silent(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = self.decode(&self.window)?;
        let settled_text = end_of_settled_text(&text);
        if settled_text == text.len() {
            // The last character is complete: give out all and keep the pending ids as context.
            if text == self.given {
                return Ok(self.drop_textless_ids());
            }
            let piece = self.behind_given(&text)?;
            return self.settle_all(piece);
        }
        if self.window.len() - self.settled > MAX_PENDING {
            return self.cut(&text);
        }
        let mut piece = String::new();
        if text.starts_with(&self.given) && settled_text > self.given.len() {
            piece = text[self.given.len()..settled_text].to_string();
            self.given.push_str(&piece);
        }
        Ok(piece)
    }

    /// The text still held back, as full decoding gives it; the stream may go on afterwards.
    pub fn flush(&mut self) -> TextResult<String> {
        let text = self.decode(&self.window)?;
        let piece = self.behind_given(&text)?;
        self.settle_all(piece)
    }

    fn decode(&self, ids: &[u32]) -> TextResult<String> {
        self.tokenizer.decode(ids, self.skip_special_tokens)
    }

    /// True for ids that decoding drops: special tokens that are skipped, ids without a token.
    fn is_silent(&self, id: u32) -> bool {
        (self.skip_special_tokens && self.tokenizer.is_special(id))
            || self.tokenizer.id_to_token(id).is_none()
    }

    /// The part of the window's text that was not given out yet.
    fn behind_given(&self, text: &str) -> TextResult<String> {
        if let Some(rest) = text.strip_prefix(self.given.as_str()) {
            return Ok(rest.to_string());
        }
        // The given text ended in replacements and the bytes behind it completed the character.
        let trimmed = self.given.trim_end_matches(REPLACEMENT);
        if trimmed.len() < self.given.len() {
            if let Some(rest) = text.strip_prefix(trimmed) {
                return Ok(rest.to_string());
            }
        }
        // Bytes that arrived later changed how earlier ones decode (byte fallback turns a run of
        // bytes with one bad byte into replacements altogether): only what is new can be given.
        self.decode(&self.window[self.settled..])
    }

    /// Makes the pending ids the context of what follows.
    fn settle_all(&mut self, piece: String) -> TextResult<String> {
        if self.settled < self.window.len() {
            self.window.drain(..self.settled);
            self.settled = self.window.len();
        }
        self.given = self.decode(&self.window)?;
        Ok(piece)
    }

    /// Ids that have a token but add no text must not lengthen the window without bound either.
    fn drop_textless_ids(&mut self) -> String {
        if self.window.len() - self.settled > MAX_PENDING {
            self.window.truncate(self.settled);
        }
        String::new()
    }

    /// Cuts the window at an id where the text on both sides stays as it is, so that a run of bad
    /// bytes costs a fixed amount for each id; gives out everything where there is no such place.
    fn cut(&mut self, text: &str) -> TextResult<String> {
        for kept in MAX_UNFINISHED_BYTES..MAX_PENDING {
            let at = self.window.len() - kept;
            if at <= self.settled {
                break;
            }
            let head = self.decode(&self.window[..at])?;
            let tail = self.decode(&self.window[at..])?;
            if head.len() + tail.len() != text.len()
                || !text.starts_with(&head)
                || !text.ends_with(&tail)
                || !text.starts_with(&self.given)
            {
                continue;
            }
            let end = end_of_settled_text(text).max(head.len());
            let piece = text[self.given.len().min(end)..end].to_string();
            self.given = text[head.len()..end].to_string();
            self.window.drain(..at);
            self.settled = 0;
            return Ok(piece);
        }
        let piece = self.behind_given(text)?;
        self.settle_all(piece)
    }
}

/// Where the trailing replacements begin that may still become a character.
fn end_of_settled_text(text: &str) -> usize {
    let mut end = text.len();
    for _ in 0..MAX_UNFINISHED_BYTES {
        match text[..end].strip_suffix(REPLACEMENT) {
            Some(rest) => end = rest.len(),
            None => break,
        }
    }
    end
}

#[cfg(test)]
#[path = "decode_stream_test.rs"]
mod tests;
