"""Situations and phrasings that no training split uses: the out-of-distribution test. Only words."""

HELDOUT = """
honey
start: {N} keeps bees and fills {n} jars of honey / on {his} shelf {N} counts {n} jars of honey
product: {N} empties {a} hives that yield {b} jars apiece
sum: {N} has {a} jars of clover honey plus {b} of pine honey
add: the next harvest yields {n} further jars / {he} is handed {n} jars as a present
sub: {he} ships {n} jars to customers / {n} jars crack in the cold
mul: a warm summer leaves {him} with {x} the jars
 / thanks to new hives the jars on the shelf become {x} as numerous
div: {he} divides the jars fairly among {k} cousins including {himself}
 / an order takes everything but a share of one in {k}
half: a bear steals one half of the jars
aside: each hive weighs {n} kilos
ask: With how many jars of honey is {N} left? / Tell me how many jars stand on the shelf.

theatre
start: {n} spectators sit in a theatre / a play opens before {n} spectators
product: {a} rows of a theatre seat {b} spectators apiece
sum: a theatre seats {a} spectators below plus {b} on the balcony
add: {n} latecomers are let in / the ushers seat {n} further guests
sub: {n} spectators walk out / {n} fall ill and go
mul: for the second act the crowd swells to {x} its size
div: a power cut drives out all but one in every {k}
half: at the break one half of the crowd goes home
aside: the curtain weighs {n} kilos
ask: What is the size of the crowd? / Tell me how many spectators watch the end.

rope
start: {N} unrolls {n} metres of rope / a sailor owns {n} metres of rope
product: {N} ties together {a} ropes of {b} metres apiece
sum: {N} ties {a} metres of thick rope to {b} metres of thin rope
add: a piece of {n} metres is tied on / the crew splices in {n} metres
sub: {n} metres fray and are cut away / knots use up {n} metres
mul: at the harbour it is swapped for one {x} as long
div: it is chopped into {k} pieces of the same length, of which one is used
half: a storm tears off one half
aside: the mast is {n} metres tall
ask: What length of rope is that in metres? / Tell me how many metres of rope there are.

museum
start: a museum shows {n} vases / in a museum stand {n} vases
product: a museum has {a} halls showing {b} vases apiece
sum: a museum shows {a} clay vases plus {b} bronze vases
add: diggers unearth {n} further vases for it / a duke leaves it {n} vases
sub: thieves steal {n} vases / {n} vases shatter in a quake
mul: a merger gives it {x} the vases
div: the vases tour {k} cities in equal lots, and one lot comes back
half: one half of the vases is loaned abroad
aside: the guide speaks {n} languages
ask: How large is the museum's set of vases? / Tell me how many vases it shows.

robots
start: {N} builds {n} small robots / in {his} lab {N} switches on {n} robots
product: {N} orders {a} kits which give {b} robots apiece
sum: {N} builds {a} walking robots plus {b} flying robots
add: {he} solders together {n} further robots / a rival sends over {n} robots
sub: {n} robots run out of power / {he} takes apart {n} robots
mul: the robots copy themselves until there are {x} as many of them
div: a virus spares a single robot in every {k}
half: one half of the robots fall into the lake
aside: a battery lasts {n} minutes
ask: How many robots work at last? / Tell me how many robots {N} commands.
"""
