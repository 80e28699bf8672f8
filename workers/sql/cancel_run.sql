-- No further evaluation of the run $1 is made, and its open trials are to be told.
update foreman.run set cancelling = true where id = $1 and not cancelling
