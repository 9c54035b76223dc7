-- Find what is counted of hours and days that are long past.
CREATE INDEX visit_link_hours_by_hour ON visit_link_hours (hour);
CREATE INDEX visit_hours_by_hour ON visit_hours (hour);
CREATE INDEX visit_sketches_by_day ON visit_sketches (day);
