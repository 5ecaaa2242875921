"""The data types that every stage shares; imports no other package of this project and no GPU library."""
