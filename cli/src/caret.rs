//! Underlining a part of a text on a terminal.
//!
//! A text of the caller's may hold anything: characters two columns wide or none, tabs, escape
//! sequences, a megabyte on one line. What is shown keeps to the columns that a terminal gives each
//! character, shows control characters as pictures, and cuts a long text down to a window around
//! the part that matters.

use std::ops::Range;
use unicode_width::UnicodeWidthChar;

/// How wide a shown text is at the most.
pub const WINDOW_COLUMNS: usize = 76;

/// Stands where something was cut off.
const CUT: char = '…';

/// A text and what stands below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Underlined {
    /// The text, or a window of it.
    pub text: String,
    /// Blanks, and a `^` under each column of the part; one where the part is empty.
    pub carets: String,
}

/// `text` with the bytes of `span` underlined, on at most `columns` columns.
///
/// The beginning of the part is always shown, its end where there is room. An end of the span beyond
/// the text, or inside a character, counts as the next boundary.
#[must_use]
pub fn underline(text: &str, span: Range<usize>, columns: usize) -> Underlined {
    let cells: Vec<Cell> = text.char_indices().map(|(at, char)| Cell::new(at, char)).collect();
    let total: usize = cells.iter().map(|cell| cell.width).sum();
    let first = cells.iter().position(|cell| cell.end > span.start).unwrap_or(cells.len());
    let (from, to) = if total < columns {
        (0, cells.len())
    } else {
        window(&cells, first, columns.saturating_sub(3))
    };

    let mut shown = Underlined { text: String::new(), carets: String::new() };
    if from > 0 {
        shown.text.push(CUT);
        shown.carets.push(' ');
    }
    let mut marked = 0;
    for (at, cell) in cells.iter().enumerate().take(to).skip(from) {
        shown.text.push(cell.shown);
        if at >= first && cell.start < span.end {
            marked += cell.width;
        } else if at < first {
            shown.carets.extend(std::iter::repeat_n(' ', cell.width));
        }
    }
    if to < cells.len() {
        shown.text.push(CUT);
    }
    shown.carets.extend(std::iter::repeat_n('^', marked.max(1)));
    shown
}

/// `text` with control characters shown as pictures.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(picture).collect()
}

/// Which cells fit into `columns` columns, with the one at `first` a third of the way in.
fn window(cells: &[Cell], first: usize, columns: usize) -> (usize, usize) {
    let fits = |cells: &mut dyn Iterator<Item = &Cell>, columns: usize| {
        let mut used = 0;
        cells
            .take_while(|cell| {
                used += cell.width;
                used <= columns
            })
            .count()
    };
    let width = |cells: &[Cell]| cells.iter().map(|cell| cell.width).sum::<usize>();
    // Where little follows, more of what comes before fits.
    let behind = width(&cells[first..]).min(columns - columns / 3);
    let from = first - fits(&mut cells[..first].iter().rev(), columns - behind);
    let to = first + fits(&mut cells[first..].iter(), columns - width(&cells[from..first]));
    (from, to)
}

/// A character, the bytes it stands on and the columns it takes.
struct Cell {
    start: usize,
    end: usize,
    shown: char,
    width: usize,
}

impl Cell {
    fn new(start: usize, char: char) -> Self {
        let shown = picture(char);
        Cell { start, end: start + char.len_utf8(), shown, width: shown.width().unwrap_or(1) }
    }
}

/// What stands for a character that would not be shown, or would change how others are.
fn picture(char: char) -> char {
    match char {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(char)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{61c}' => '\u{fffd}',
        char => char,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, span: Range<usize>, columns: usize) -> [String; 2] {
        let Underlined { text, carets } = underline(text, span, columns);
        [text, carets]
    }

    #[test]
    fn the_part_is_underlined_and_an_empty_one_is_a_single_caret() {
        assert_eq!(show("poll:x", 4..6, 76), ["poll:x", "    ^^"]);
        assert_eq!(show("spin:", 5..5, 76), ["spin:", "     ^"]);
        assert_eq!(show("", 0..0, 76), ["", "^"]);
        assert_eq!(show("poll", 2..2, 76), ["poll", "  ^"]);
        assert_eq!(show("poll", 9..12, 76), ["poll", "    ^"], "beyond the text");
    }

    #[test]
    fn columns_are_those_of_the_terminal() {
        assert_eq!(show("µs=1", 4..5, 76), ["µs=1", "   ^"], "two bytes, one column");
        assert_eq!(show("待つ:x", 7..8, 76), ["待つ:x", "     ^"], "two columns each");
        assert_eq!(show("待つ", 3..6, 76), ["待つ", "  ^^"]);
        assert_eq!(show("e\u{301}x", 3..4, 76), ["e\u{301}x", " ^"], "no column of its own");
    }

    #[test]
    fn what_would_move_the_cursor_is_shown_as_a_picture() {
        assert_eq!(show("a\tb\x1b[1m", 3..4, 76), ["a␉b␛[1m", "   ^"]);
        assert_eq!(printable("a\r\nb\u{202e}c"), "a␍␊b\u{fffd}c");
    }

    #[test]
    fn a_long_text_is_cut_around_the_part() {
        let text = "0123456789".repeat(10);
        assert_eq!(show(&text, 0..2, 13), ["0123456789…", "^^"]);
        assert_eq!(show(&text, 55..57, 13), ["…2345678901…", "    ^^"]);
        assert_eq!(show(&text, 98..100, 13), ["…0123456789", "         ^^"]);
        assert_eq!(show(&text, 100..100, 13), ["…0123456789", "           ^"]);
        assert_eq!(show(&text, 50..100, 13), ["…7890123456…", "    ^^^^^^^"], "cut itself");
        let wide = "待".repeat(100_000);
        let [text, carets] = show(&wide, 150_000..150_003, WINDOW_COLUMNS);
        assert!(text.chars().count() <= 38 && carets.ends_with(" ^^"), "{text} {carets}");
    }
}
