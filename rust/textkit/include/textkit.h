/* textkit: Hugging Face tokenizers and chat templates, the C ABI of the Rust library beside it.
 *
 * Ownership. An object made by textkit_*_new belongs to the caller, who ends it with the matching
 * textkit_*_free (null is allowed there). Text and ids that a function returns in a textkit_bytes
 * or textkit_ids belong to the caller too, and end with textkit_bytes_free or textkit_ids_free.
 * Inputs are borrowed for the length of the call. A decode stream keeps its tokenizer alive.
 *
 * Text is UTF-8 with a length and without a terminating zero; an input that is not UTF-8 is an
 * invalid argument. An empty input may have a null pointer.
 *
 * Threads. A tokenizer and a template may be used by any number of threads at once. A decode stream
 * is used by one thread at a time. Compiling and rendering a template run on a short-lived thread
 * of their own, since their need of stack is larger than a caller's may be.
 *
 * Errors. Functions return a textkit_status. When it is not TEXTKIT_OK, no output was written and
 * textkit_last_error() has the message. Panics inside Rust come back as TEXTKIT_INTERNAL; nothing
 * unwinds into the caller, and as there are no callbacks, nothing of the caller's unwinds through
 * Rust. Nothing is printed.
 *
 * Limits, for input that nobody checked: texts and contexts of 64 MiB, templates of 1 MiB with
 * 16 KiB of code in one tag, JSON and values nested about 128 and 240 deep, output of 64 MiB, and
 * for one rendering a budget of work, 512 MiB of memory and a minute. A rendering that goes over
 * the last two leaves a sleeping thread behind (an allocation cannot unwind); its template
 * then refuses to be rendered again. */
#ifndef OCTAVO_TEXTKIT_H_
#define OCTAVO_TEXTKIT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t textkit_status;
enum {
  TEXTKIT_OK = 0,
  TEXTKIT_INVALID_ARGUMENT = 1,   /* not UTF-8, not JSON, a template that does not compile or run */
  TEXTKIT_DATA_LOSS = 2,          /* a damaged tokenizer.json */
  TEXTKIT_RAISED_BY_TEMPLATE = 3, /* raise_exception(message): the message is its argument */
  TEXTKIT_RESOURCE_EXHAUSTED = 4, /* one of the limits above */
  TEXTKIT_INTERNAL = 5            /* a bug */
};

typedef struct {
  uint8_t* data;
  size_t size;
  size_t capacity; /* for textkit_bytes_free */
} textkit_bytes;

typedef struct {
  uint32_t* data;
  size_t size;
  size_t capacity; /* for textkit_ids_free */
} textkit_ids;

typedef struct textkit_tokenizer textkit_tokenizer;
typedef struct textkit_decode_stream textkit_decode_stream;
typedef struct textkit_template textkit_template;

/* The message of this thread's last failure, until its next one. */
const char* textkit_last_error(void);

void textkit_bytes_free(textkit_bytes bytes);
void textkit_ids_free(textkit_ids ids);

/* ---- Tokenizer: the contents of a tokenizer.json, without its truncation and padding. ---- */

textkit_status textkit_tokenizer_new(const uint8_t* json, size_t size, textkit_tokenizer** out);
void textkit_tokenizer_free(textkit_tokenizer* tokenizer);

/* Special tokens that are written out in `text` become their ids, as in transformers;
 * add_special_tokens adds those of the post-processor (a beginning-of-text token, say). */
textkit_status textkit_tokenizer_encode(const textkit_tokenizer* tokenizer, const uint8_t* text,
                                        size_t size, bool add_special_tokens, textkit_ids* out);

/* Ids without a token are left out. */
textkit_status textkit_tokenizer_decode(const textkit_tokenizer* tokenizer, const uint32_t* ids,
                                        size_t count, bool skip_special_tokens, textkit_bytes* out);

/* size: number of tokens, added ones included; id_limit: one past the largest id. */
textkit_status textkit_tokenizer_vocab_size(const textkit_tokenizer* tokenizer, size_t* size,
                                            uint32_t* id_limit);

/* id: -1 when there is no such token. */
textkit_status textkit_tokenizer_token_to_id(const textkit_tokenizer* tokenizer,
                                             const uint8_t* token, size_t size, int64_t* id);

/* An id without a token is an invalid argument. */
textkit_status textkit_tokenizer_id_to_token(const textkit_tokenizer* tokenizer, uint32_t id,
                                             textkit_bytes* out);

/* The special tokens in the order of their ids: index counts from 0. */
textkit_status textkit_tokenizer_special_count(const textkit_tokenizer* tokenizer, size_t* count);
textkit_status textkit_tokenizer_special_at(const textkit_tokenizer* tokenizer, size_t index,
                                            uint32_t* id, textkit_bytes* text);

/* ---- Decode stream: text from ids as they come, in whole characters. ---- */

/* The last ids of `prompt` are context: their text is not given out, but whether the first word
 * begins with a space depends on them. prompt_count may be 0. */
textkit_status textkit_decode_stream_new(const textkit_tokenizer* tokenizer,
                                         bool skip_special_tokens, const uint32_t* prompt,
                                         size_t prompt_count, textkit_decode_stream** out);
void textkit_decode_stream_free(textkit_decode_stream* stream);

/* out: the text that became final with this id, often empty. */
textkit_status textkit_decode_stream_push(textkit_decode_stream* stream, uint32_t id,
                                          textkit_bytes* out);

/* out: what is held back, with U+FFFD for bytes that are no character. */
textkit_status textkit_decode_stream_flush(textkit_decode_stream* stream, textkit_bytes* out);

/* ---- Chat template: Jinja as transformers has it. ---- */

textkit_status textkit_template_new(const uint8_t* source, size_t size, textkit_template** out);
void textkit_template_free(textkit_template* chat_template);

/* context: a JSON object; its members (messages, add_generation_prompt, bos_token, ...) are the
 * template's variables. */
textkit_status textkit_template_render(const textkit_template* chat_template,
                                       const uint8_t* context, size_t size, textkit_bytes* out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* OCTAVO_TEXTKIT_H_ */
