use super::*;
use serde_json::{json, Map, Value};

/// The character that stands for a byte in byte-level vocabularies.
fn byte_symbol(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if plain(byte) {
        return byte as char;
    }
    let rank = (0..byte).filter(|&b| !plain(b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap()
}

fn tokenizer(vocab: Map<String, Value>, decoder: Value, special: &[(u32, &str)]) -> Arc<Tokenizer> {
    let added: Vec<Value> = special
        .iter()
        .map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let json = json!({"version": "1.0", "added_tokens": added, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": []}});
    Arc::new(Tokenizer::from_json(json.to_string().as_bytes()).unwrap())
}

/// Id = byte; 256 and up are longer tokens; 300 is special.
fn byte_level() -> Arc<Tokenizer> {
    let mut vocab = Map::new();
    for byte in 0..=255u8 {
        vocab.insert(byte_symbol(byte).to_string(), json!(byte));
    }
    for (index, text) in [" hello", "wor", "ld\u{4e2d}"].iter().enumerate() {
        let symbols: String = text.bytes().map(byte_symbol).collect();
        vocab.insert(symbols, json!(256 + index));
    }
    vocab.insert("<|end|>".to_string(), json!(300));
    let decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                         "use_regex": true});
    tokenizer(vocab, decoder, &[(300, "<|end|>")])
}

/// As Llama 2 has it: ids 0..256 are byte tokens, then words; the decoder strips one leading space.
fn byte_fallback() -> Arc<Tokenizer> {
    let mut vocab = Map::new();
    for byte in 0..=255u8 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(byte));
    }
    for (index, text) in ["▁Hello", "▁world", "!", "▁", "\u{FFFD}"].iter().enumerate() {
        vocab.insert(text.to_string(), json!(256 + index));
    }
    vocab.insert("</s>".to_string(), json!(300));
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    tokenizer(vocab, decoder, &[(300, "</s>")])
}

fn pieces(tokenizer: &Arc<Tokenizer>, prompt: &[u32], ids: &[u32]) -> Vec<String> {
    let mut stream = DecodeStream::new(tokenizer.clone(), true, prompt).unwrap();
    let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    pieces.push(stream.flush().unwrap());
    assert_eq!(stream.flush().unwrap(), "");
    pieces
}

fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    pieces(tokenizer, &[], ids).concat()
}

fn byte_ids(text: &[u8]) -> Vec<u32> {
    text.iter().map(|&byte| u32::from(byte)).collect()
}

#[test]
fn gives_characters_when_they_are_complete() {
    let ids = byte_ids("a中😀".as_bytes());
    assert_eq!(pieces(&byte_level(), &[], &ids), ["a", "", "", "中", "", "", "", "😀", ""]);
    assert_eq!(pieces(&byte_fallback(), &[], &ids), ["a", "", "", "中", "", "", "", "😀", ""]);
}

#[test]
fn flush_gives_the_unfinished_tail_as_full_decoding_does() {
    let tails: [&[u8]; 5] = [b"\xe4", b"\xe4\xb8", b"\xf0\x9f\x98", b"\x80", b"\x80\x80\x80\x80"];
    for tokenizer in [byte_level(), byte_fallback()] {
        for tail in tails {
            let ids = [&[256][..], &byte_ids(tail)].concat();
            assert_eq!(streamed(&tokenizer, &ids), tokenizer.decode(&ids, true).unwrap());
        }
    }
}

#[test]
fn a_literal_replacement_character_is_not_lost() {
    let ids = byte_ids("x\u{FFFD}".as_bytes());
    assert_eq!(streamed(&byte_level(), &ids), "x\u{FFFD}");
    let tokenizer = byte_fallback();
    assert_eq!(streamed(&tokenizer, &[256, 260]), "Hello\u{FFFD}");
    assert_eq!(streamed(&tokenizer, &[256, 260, 257]), "Hello\u{FFFD} world");
}

#[test]
fn random_bytes_equal_full_decoding() {
    let tokenizer = byte_level();
    let mut state = 12345u64;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let alphabet = [0x20, 0x41, 0x80, 0xbf, 0xe4, 0xb8, 0xad, 0xf0, 0x9f, 0x98, 0xc3, 0xff];
    for _ in 0..5000 {
        let length = random(40);
        let ids: Vec<u32> = (0..length)
            .map(|_| match random(5) {
                0 => 256 + random(3) as u32,
                _ => alphabet[random(alphabet.len() as u64) as usize],
            })
            .collect();
        let expected = tokenizer.decode(&ids, true).unwrap();
        assert_eq!(streamed(&tokenizer, &ids), expected, "ids {ids:?}");
    }
}

#[test]
fn byte_fallback_text_equals_full_decoding() {
    let tokenizer = byte_fallback();
    let mut ids = vec![256, 257, 258];
    ids.extend(byte_ids("中文😀é".as_bytes()));
    ids.extend([259, 259, 257, 260]);
    assert_eq!(streamed(&tokenizer, &ids), tokenizer.decode(&ids, true).unwrap());
    // A bad byte behind a complete character turns both into replacements in full decoding; what
    // was given out stays, and nothing is lost.
    let ids = byte_ids(b"\xe4\xb8\xad\x80");
    assert_eq!(streamed(&tokenizer, &ids), "中\u{FFFD}");
}

#[test]
fn runs_of_bad_bytes_are_given_out_and_cost_linear_time() {
    for tokenizer in [byte_level(), byte_fallback()] {
        let ids = vec![0x80; 20_000];
        let mut stream = DecodeStream::new(tokenizer.clone(), true, &[]).unwrap();
        let mut given = 0;
        for (index, &id) in ids.iter().enumerate() {
            given += stream.push(id).unwrap().chars().count();
            assert!(index + 1 - given <= MAX_PENDING, "held back {}", index + 1 - given);
            assert!(stream.window.len() <= 2 * MAX_PENDING + 2);
        }
        given += stream.flush().unwrap().chars().count();
        assert_eq!(given, ids.len());
    }
}

#[test]
fn ids_without_text_do_not_lengthen_the_window() {
    let tokenizer = byte_fallback();
    let mut stream = DecodeStream::new(tokenizer.clone(), true, &[]).unwrap();
    for id in [300, 5000, u32::MAX].repeat(100) {
        assert_eq!(stream.push(id).unwrap(), "");
    }
    assert!(stream.window.is_empty());
    let shown = DecodeStream::new(tokenizer, false, &[]).unwrap().push(300).unwrap();
    assert_eq!(shown, "</s>");
}

#[test]
fn the_prompt_decides_about_a_leading_space() {
    let tokenizer = byte_fallback();
    assert_eq!(pieces(&tokenizer, &[], &[257, 258]), ["world", "!", ""]);
    assert_eq!(pieces(&tokenizer, &[256], &[257, 258]), [" world", "!", ""]);
    // Special tokens have no text: context is looked for in front of them.
    assert_eq!(pieces(&tokenizer, &[&[256][..], &[300; 50]].concat(), &[257]), [" world", ""]);
}

#[test]
fn a_prompt_may_end_inside_a_character() {
    let tokenizer = byte_level();
    assert_eq!(pieces(&tokenizer, &byte_ids(b"a\xe4\xb8"), &[0xad, 0x41]), ["中", "A", ""]);
    assert_eq!(pieces(&tokenizer, &byte_ids(b"a\xe4\xb8"), &[0x41]), ["A", ""]);
}

#[test]
fn a_stream_goes_on_after_a_flush() {
    let tokenizer = byte_level();
    let mut stream = DecodeStream::new(tokenizer, true, &[]).unwrap();
    assert_eq!(stream.push(0xe4).unwrap(), "");
    assert_eq!(stream.flush().unwrap(), "\u{FFFD}");
    assert_eq!(stream.push(0x41).unwrap(), "A");
    assert_eq!(stream.push(0x42).unwrap(), "B");
}
