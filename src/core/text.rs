//! Texts of the caller's that are quoted in messages: cut to a length, never inside a character.

use alloc::{borrow::ToOwned, string::String};

/// How much of a whole text a message quotes, in characters.
pub(crate) const WHOLE_CHARS: usize = 200;

/// `text`, or its first `chars` characters and an ellipsis where it has more. Looks at no more
/// than `chars + 1` characters, however long the text is.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => {
            let mut cut = String::with_capacity(at + '…'.len_utf8());
            cut.push_str(&text[..at]);
            cut.push('…');
            cut
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_behind_a_whole_character_and_only_where_it_is_too_long() {
        assert_eq!(excerpt("", 0), "");
        assert_eq!(excerpt("µs", 2), "µs");
        assert_eq!(excerpt("µsµ", 2), "µs…");
        assert_eq!(excerpt("x", 0), "…");
    }
}
