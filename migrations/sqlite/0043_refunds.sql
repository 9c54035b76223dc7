-- The part of a conversion's value that was refunded in all, in ten-thousandths of the currency's unit; NULL without a
-- refund. Of a conversion without a value, 0 is all of it.
ALTER TABLE conversions ADD COLUMN refunded INTEGER;
