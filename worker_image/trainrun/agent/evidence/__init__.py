"""What is found out about ranks that stand still, before anything is done about them."""
