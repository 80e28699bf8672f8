-- A new key. Nothing happens when its id is there already: the caller compares.
--   $1 text  key id          $2 text  team id      $3 text  name        $4 text  role
--   $5 bool  operator        $6 bytea hash         $7 timestamptz expires_at or null
-- Of two writers of one id the second waits for the first and then does nothing.
insert into seatrial.api_key (id, team, name, role, operator, hash, expires_at)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (id) do nothing
returning id
