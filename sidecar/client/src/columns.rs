//! Tables whose rows arrive in pages.

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

/// The spaces between columns.
const GAP: u16 = 2;

/// A table: columns are as wide as the cells of the first page, and grow with later ones.
#[derive(Debug)]
pub struct Columns<const N: usize> {
    /// The heads, unless they have been printed.
    heads: Option<[&'static str; N]>,
    /// The right-aligned columns: numbers.
    right: &'static [usize],
    widths: [u16; N],
}

impl<const N: usize> Columns<N> {
    /// Creates a table with these heads, and numbers in some columns.
    pub fn new(heads: [&'static str; N], right: &'static [usize]) -> Self {
        Self {
            heads: Some(heads),
            right,
            widths: [0; N],
        }
    }

    /// More rows, behind the heads when they are the first.
    pub fn rows(&mut self, rows: &[[String; N]]) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.add_rows(self.heads.take());
        table.add_rows(rows);
        let widths = table.column_max_content_widths();
        let columns = self.widths.iter_mut().zip(widths);
        for ((index, column), (width, needed)) in table.column_iter_mut().enumerate().zip(columns) {
            *width = needed.max(*width);
            let width = Width::Fixed(width.saturating_add(GAP));
            column.set_padding((0, GAP));
            column.set_constraint(ColumnConstraint::LowerBoundary(width));
            if self.right.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    fn row(cells: [&str; 3]) -> [String; 3] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_stand_below_each_other_and_numbers_to_the_right() {
        let mut columns = Columns::new(["CODE", "N", "TARGET"], &[1]);
        let first = columns.rows(&[row(["a", "1", "x"]), row(["länger", "100", "y"])]);
        assert_eq!(
            first,
            "CODE      N  TARGET\na         1  x\nlänger  100  y\n"
        );
        assert_eq!(columns.rows(&[row(["b", "2", ""])]), "b         2\n");
    }

    #[test]
    fn wide_characters_take_two_places() {
        let mut columns = Columns::new(["NAME", "N", "TARGET"], &[1]);
        let rows = columns.rows(&[row(["春季短信活动", "1", "x"]), row(["spring", "100", "y"])]);
        assert_eq!(
            rows,
            "NAME            N  TARGET\n春季短信活动    1  x\nspring        100  y\n"
        );
    }
}
