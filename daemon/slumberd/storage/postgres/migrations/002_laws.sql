-- Firings may be resolved under a later law than 1. A slumberd that knows only step 1 would resolve
-- them under law 1, so it must not work on this schema.

COMMENT ON COLUMN slumberd.ledger.payload IS
  'JSON. That of a firing names the law that it was resolved under; without a name it is law 1.';
