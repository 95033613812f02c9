//! Texts of bounded length, for records, requests and answers.

use berth_domain::limits::TEXT_BYTES_MAX;

/// The text as a record and a request take it: at most [`TEXT_BYTES_MAX`] bytes. What is cut off is
/// marked by `…`.
pub fn shorten(mut text: String) -> String {
    const CUT: char = '…';
    if text.len() > TEXT_BYTES_MAX {
        let most = TEXT_BYTES_MAX - CUT.len_utf8();
        text.truncate((0..=most).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0));
        text.push(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_kept() {
        let longest = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(shorten(longest.clone()), longest);
        for long in [longest + "y", "é".repeat(TEXT_BYTES_MAX)] {
            let cut = shorten(long);
            assert!(cut.ends_with('…') && cut.len() <= TEXT_BYTES_MAX, "{}", cut.len());
            assert!(cut.len() > TEXT_BYTES_MAX - 4);
        }
    }
}
