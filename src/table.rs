//! Tables as kubectl prints them.

use comfy_table::{Table, presets};

/// Rows under a header, two spaces apart, without lines.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// As kubectl writes ages.
pub(crate) fn age(seconds: i64) -> String {
    let minutes =
        |m: i64| if m < 10 && seconds % 60 != 0 { format!("{m}m{}s", seconds % 60) } else { format!("{m}m") };
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..10_800 => minutes(seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in
            [(-1, "0s"), (119, "119s"), (123, "2m3s"), (600, "10m"), (11_000, "3h"), (200_000, "2d")]
        {
            assert_eq!(age(seconds), text);
        }
    }
}
