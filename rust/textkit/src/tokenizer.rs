//! A tokenizer.json, as the Hugging Face `tokenizers` library runs it.

use crate::error::{Code, TextError, TextResult};
use std::collections::HashSet;
use std::str::FromStr;

/// Longer texts are refused: normalization keeps several bytes for each byte of text.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special_ids: HashSet<u32>,
    /// One past the largest id, which is more than the number of tokens where ids have holes.
    id_limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    pub id: u32,
    pub text: String,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> TextResult<Tokenizer> {
        let text = std::str::from_utf8(json)
            .map_err(|error| TextError::new(Code::DataLoss, format!("not UTF-8: {error}")))?;
        let mut inner = tokenizers::Tokenizer::from_str(text).map_err(TextError::data_loss)?;
        // A tokenizer.json may carry the truncation and padding of its training script; whoever
        // serves the model decides about lengths, so both are switched off, as transformers does.
        inner.with_truncation(None).map_err(TextError::data_loss)?;
        inner.with_padding(None);
        let special_ids = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        let id_limit = inner.get_vocab(true).values().max().map_or(0, |id| id.saturating_add(1));
        Ok(Tokenizer { inner, special_ids, id_limit })
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> TextResult<Vec<u32>> {
        if text.len() > MAX_TEXT_BYTES {
            let message = format!("text of {} bytes; the limit is {MAX_TEXT_BYTES}", text.len());
            return Err(TextError::exhausted(message));
        }
        // encode_fast leaves out character offsets, which nothing here reads.
        let encoding =
            self.inner.encode_fast(text, add_special_tokens).map_err(TextError::internal)?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> TextResult<String> {
        self.inner.decode(ids, skip_special_tokens).map_err(TextError::internal)
    }

    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    pub fn id_limit(&self) -> u32 {
        self.id_limit
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special_ids.contains(&id)
    }

    /// Special tokens in the order of their ids.
    pub fn special_tokens(&self) -> Vec<SpecialToken> {
        let mut tokens: Vec<SpecialToken> = self
            .special_ids
            .iter()
            .map(|&id| SpecialToken { id, text: self.id_to_token(id).unwrap_or_default() })
            .collect();
        tokens.sort_by_key(|token| token.id);
        tokens
    }
}
