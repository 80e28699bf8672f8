-- Every open trial of the run $1 was told. Nothing is expanded any more, so none can have come since.
update foreman.run set cancel_told = true where id = $1
